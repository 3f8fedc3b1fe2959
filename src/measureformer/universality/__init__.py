"""Universal approximation as a compiler: from a function to the weights of a transformer."""

from typing import TYPE_CHECKING

from measureformer.errors import suggest_names as _suggest_names
from measureformer.universality.algebra import Block as Block
from measureformer.universality.algebra import vector as vector
from measureformer.universality.compile import compile as compile
from measureformer.universality.corollary import fit_map as fit_map
from measureformer.universality.export import load_compiled as load_compiled
from measureformer.universality.fit import fit as fit
from measureformer.universality.masked import time_lipschitz as time_lipschitz
from measureformer.universality.moments import identify as identify
from measureformer.universality.moments import moments as moments
from measureformer.universality.moments import tilted_mean as tilted_mean
from measureformer.universality.search import Search as Search
from measureformer.universality.targets import mean as mean
from measureformer.universality.targets import variance as variance
from measureformer.universality.train import train_functional as train_functional

if not TYPE_CHECKING:
    __getattr__, __dir__ = _suggest_names(__name__)
