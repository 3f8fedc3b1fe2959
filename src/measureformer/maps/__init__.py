"""In-context maps: layers as functions of a measure and a point, and their composition."""

from typing import TYPE_CHECKING

from measureformer.errors import suggest_names as _suggest_names
from measureformer.maps.affine import AffineAttention as AffineAttention
from measureformer.maps.affine import RotaryAttention as RotaryAttention
from measureformer.maps.attention import Attention as Attention
from measureformer.maps.base import AbstractInContextMap as AbstractInContextMap
from measureformer.maps.causal import Causal as Causal
from measureformer.maps.compose import Identity as Identity
from measureformer.maps.compose import Residual as Residual
from measureformer.maps.differential import DifferentialAttention as DifferentialAttention
from measureformer.maps.gated import GatedMLP as GatedMLP
from measureformer.maps.laws import check_laws as check_laws
from measureformer.maps.mlp import MLP as MLP
from measureformer.maps.mlp import Linear as Linear
from measureformer.maps.norm import LayerNorm as LayerNorm
from measureformer.maps.norm import RMSNorm as RMSNorm
from measureformer.maps.norm import UnitNorm as UnitNorm
from measureformer.maps.positions import Positional as Positional
from measureformer.maps.positions import PositionTable as PositionTable
from measureformer.maps.positions import Sinusoidal as Sinusoidal
from measureformer.maps.rescaled import Rescaled as Rescaled
from measureformer.maps.sigmoid import SigmoidAttention as SigmoidAttention
from measureformer.maps.sinkhorn import SinkhornAttention as SinkhornAttention
from measureformer.maps.tangent import Tangent as Tangent
from measureformer.maps.transformer import Transformer as Transformer
from measureformer.maps.variants import HardmaxAttention as HardmaxAttention
from measureformer.maps.variants import L2Attention as L2Attention
from measureformer.maps.variants import LinearAttention as LinearAttention
from measureformer.maps.variants import UnnormalizedAttention as UnnormalizedAttention
from measureformer.maps.variation import first_variation as first_variation

if not TYPE_CHECKING:
    __getattr__, __dir__ = _suggest_names(__name__)
