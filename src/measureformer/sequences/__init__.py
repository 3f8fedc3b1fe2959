"""Functions of n tokens, compiled to transformers: deep, in one layer, along sparse masks; and the limits of mixers."""

from typing import TYPE_CHECKING

from measureformer.errors import suggest_names as _suggest_names
from measureformer.sequences import boltzmann as boltzmann
from measureformer.sequences import hybrids as hybrids
from measureformer.sequences import mixers as mixers
from measureformer.sequences import sparse as sparse
from measureformer.sequences import yun as yun

if not TYPE_CHECKING:
    __getattr__ = _suggest_names(__name__)
