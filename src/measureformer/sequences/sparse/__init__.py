"""Sparse attention: which masks are universal, the construction that proves it, and attention along a mask."""

from measureformer.sequences.sparse.attention import Connections as Connections
from measureformer.sequences.sparse.attention import SparseAttention as SparseAttention
from measureformer.sequences.sparse.compile import compile as compile
from measureformer.sequences.sparse.conditions import Chain as Chain
from measureformer.sequences.sparse.conditions import Conditions as Conditions
from measureformer.sequences.sparse.conditions import Reach as Reach
from measureformer.sequences.sparse.conditions import SelfLoops as SelfLoops
from measureformer.sequences.sparse.conditions import Suggestion as Suggestion
from measureformer.sequences.sparse.conditions import check as check
from measureformer.sequences.sparse.conditions import suggest as suggest
from measureformer.sequences.sparse.patterns import pattern as pattern
