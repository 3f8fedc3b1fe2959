"""Universal approximation as a compiler: from a function to the weights of a transformer."""

from measureformer.universality import boltzmann as boltzmann
from measureformer.universality import hybrids as hybrids
from measureformer.universality import mixers as mixers
from measureformer.universality import sparsity as sparsity
from measureformer.universality import yun as yun
