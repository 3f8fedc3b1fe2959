"""Sparse attention: which masks are universal, the construction that proves it, and attention along a mask."""

from measureformer.universality.sparsity._attention import Connections as Connections
from measureformer.universality.sparsity._attention import SparseAttention as SparseAttention
from measureformer.universality.sparsity._compile import compile as compile
from measureformer.universality.sparsity._conditions import Chain as Chain
from measureformer.universality.sparsity._conditions import Conditions as Conditions
from measureformer.universality.sparsity._conditions import Reach as Reach
from measureformer.universality.sparsity._conditions import SelfLoops as SelfLoops
from measureformer.universality.sparsity._conditions import Suggestion as Suggestion
from measureformer.universality.sparsity._conditions import check as check
from measureformer.universality.sparsity._conditions import suggest as suggest
from measureformer.universality.sparsity._patterns import pattern as pattern
