"""Sparse attention: which masks are universal, the construction that proves it, and attention along a mask."""

from measureformer.sequences.sparse.attention import Connections as Connections
from measureformer.sequences.sparse.attention import SparseAttention as SparseAttention
from measureformer.sequences.sparse.compile import compile_sparse as compile_sparse
from measureformer.sequences.sparse.conditions import Chain as Chain
from measureformer.sequences.sparse.conditions import Conditions as Conditions
from measureformer.sequences.sparse.conditions import Reach as Reach
from measureformer.sequences.sparse.conditions import SelfLoops as SelfLoops
from measureformer.sequences.sparse.conditions import Suggestion as Suggestion
from measureformer.sequences.sparse.conditions import check_pattern as check_pattern
from measureformer.sequences.sparse.conditions import suggest_pattern as suggest_pattern
from measureformer.sequences.sparse.patterns import sparse_pattern as sparse_pattern
