"""Functions of n tokens, compiled to transformers: deep, in one layer, along sparse masks; and the limits of mixers."""

from typing import TYPE_CHECKING

from measureformer.errors import suggest_names as _suggest_names
from measureformer.sequences.boltzmann.compile import compile_one_layer as compile_one_layer
from measureformer.sequences.boltzmann.hardmax import hardmax_collision as hardmax_collision
from measureformer.sequences.boltzmann.memory import memorize as memorize
from measureformer.sequences.boltzmann.operator import boltz as boltz
from measureformer.sequences.boltzmann.operator import kajitsuka24_log_separation as kajitsuka24_log_separation
from measureformer.sequences.boltzmann.operator import log_boltz_gap as log_boltz_gap
from measureformer.sequences.mixers import Bilinear as Bilinear
from measureformer.sequences.mixers import SeparableConv as SeparableConv
from measureformer.sequences.mixers import told_apart as told_apart
from measureformer.sequences.sparse.attention import SparseAttention as SparseAttention
from measureformer.sequences.sparse.compile import compile_sparse as compile_sparse
from measureformer.sequences.sparse.conditions import check_pattern as check_pattern
from measureformer.sequences.sparse.conditions import suggest_pattern as suggest_pattern
from measureformer.sequences.sparse.patterns import sparse_pattern as sparse_pattern
from measureformer.sequences.yun import compile_yun as compile_yun

if not TYPE_CHECKING:
    __getattr__, __dir__ = _suggest_names(__name__)
