"""Associative memories: classical, dense and modern, whose update is attention."""

from typing import TYPE_CHECKING

from measureformer.errors import suggest_names as _suggest_names
from measureformer.memory.attention import as_attention as as_attention
from measureformer.memory.attention import as_memory as as_memory
from measureformer.memory.capacity import amit85_capacity as amit85_capacity
from measureformer.memory.capacity import birthday_capacity as birthday_capacity
from measureformer.memory.capacity import demircigil17_capacity as demircigil17_capacity
from measureformer.memory.capacity import krotov16_capacity as krotov16_capacity
from measureformer.memory.capacity import mceliece87_capacity as mceliece87_capacity
from measureformer.memory.capacity import ramsauer20_capacity as ramsauer20_capacity
from measureformer.memory.capacity_curve import basin_curve as basin_curve
from measureformer.memory.capacity_curve import capacity as capacity
from measureformer.memory.classical import Classical as Classical
from measureformer.memory.dense import Dense as Dense
from measureformer.memory.fit import fit_retrieval as fit_retrieval
from measureformer.memory.heads import head_class as head_class
from measureformer.memory.images import digits as digits
from measureformer.memory.images import masked as masked
from measureformer.memory.images import noisy as noisy
from measureformer.memory.interactions import Exponential as Exponential
from measureformer.memory.interactions import Polynomial as Polynomial
from measureformer.memory.modern import Modern as Modern
from measureformer.memory.recall import draw_recall as draw_recall
from measureformer.memory.recall import recall as recall
from measureformer.memory.retrieval import basin as basin

if not TYPE_CHECKING:
    __getattr__, __dir__ = _suggest_names(__name__)
