"""The engine: exact attention on arrays. It knows no measures, only queries, keys, values and log-weights."""

from typing import TYPE_CHECKING

from measureformer.attention.attend import attend as attend
from measureformer.attention.concentration import concentration as concentration
from measureformer.attention.coverage import coverage as coverage
from measureformer.attention.grid import Grid as Grid
from measureformer.attention.grid import GridPlan as GridPlan
from measureformer.attention.sharded import Sharded as Sharded
from measureformer.attention.streaming import Streaming as Streaming
from measureformer.errors import suggest_names as _suggest_names

if not TYPE_CHECKING:
    __getattr__, __dir__ = _suggest_names(__name__)
