"""Universal approximation as a compiler: from a function of a measure and a point to the weights of a transformer."""

from measureformer.universality._compile import compile as compile
from measureformer.universality._export import load as load
from measureformer.universality.algebra import Block as Block
from measureformer.universality.algebra import Expression as Expression
from measureformer.universality.algebra import vector as vector
from measureformer.universality.compiled import Census as Census
from measureformer.universality.compiled import Compiled as Compiled
