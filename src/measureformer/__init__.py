"""measureformer: a layer is a function of a measure and a point; applying it is a push-forward.

Importing the package loads neither JAX nor SciPy: public names are resolved on first use (PEP 562).
"""

from __future__ import annotations

import importlib
import os
import sys
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

__version__ = "0.1.0"


def _prefer_64_bit() -> None:
    """Ask JAX for float64 unless the user has said otherwise through JAX_ENABLE_X64."""
    if "JAX_ENABLE_X64" in os.environ:
        return
    os.environ["JAX_ENABLE_X64"] = "1"
    if "jax" in sys.modules:
        # JAX reads the variable when it is imported, which has already happened
        sys.modules["jax"].config.update("jax_enable_x64", True)


_prefer_64_bit()

_HOMES = {
    "measures": [
        "Ball",
        "Box",
        "Discrete",
        "Gaussian",
        "GaussianMixture",
        "SpaceTime",
        "gather",
        "shard",
        "subset_sum_gap",
    ],
    "attention": [
        "Attended",
        "Concentration",
        "Coverage",
        "Grid",
        "Plan",
        "Sharded",
        "Streaming",
        "attend",
        "concentration",
        "coverage",
    ],
    "maps": [
        "AbstractInContextMap",
        "AffineAttention",
        "Attention",
        "Causal",
        "GatedMLP",
        "HardmaxAttention",
        "Identity",
        "L2Attention",
        "LayerNorm",
        "Linear",
        "LinearAttention",
        "MLP",
        "PositionTable",
        "Positional",
        "RMSNorm",
        "Residual",
        "RotaryAttention",
        "SinkhornAttention",
        "Sinusoidal",
        "Transformer",
        "UnitNorm",
        "UnnormalizedAttention",
        "first_variation",
    ],
    "transport": [
        "conditional_wasserstein",
        "coupling",
        "positive_wasserstein",
        "sinkhorn",
        "sliced_wasserstein",
        "transport_cost",
        "wasserstein",
        "wasserstein_bracket",
    ],
    "regularity": ["local_lipschitz"],
    "flows": ["flow", "gaussian_flow"],
    "structure": ["is_support_preserving", "is_transformer", "recover", "regular_derivative"],
    "distributed": ["join_workers"],
    "training": ["use_cores"],
    "workers": ["Workers", "sweep"],
    "_claims": ["Claim", "check", "claims"],
    "result": ["Check", "Figure", "Outcome", "Result", "Series"],
    "refs": ["cite"],
    "report": ["save_figure"],
    "errors": ["MeasureformerError"],
}
_NAMESPACES = (
    "flows",
    "implicit_bias",
    "incontext",
    "lens",
    "memory",
    "regularity",
    "structure",
    "text",
    "universality",
)
"""Folders that are public as a whole: `mf.regularity.ball`."""
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

if TYPE_CHECKING:
    import measureformer.flows as flows  # noqa: F401
    import measureformer.implicit_bias as implicit_bias  # noqa: F401
    import measureformer.incontext as incontext  # noqa: F401
    import measureformer.lens as lens  # noqa: F401
    import measureformer.memory as memory  # noqa: F401
    import measureformer.regularity as regularity  # noqa: F401
    import measureformer.structure as structure  # noqa: F401
    import measureformer.text as text  # noqa: F401
    import measureformer.universality as universality  # noqa: F401
    from measureformer._claims import Claim as Claim
    from measureformer._claims import check as check
    from measureformer._claims import claims as claims
    from measureformer.attention import Attended as Attended
    from measureformer.attention import Concentration as Concentration
    from measureformer.attention import Coverage as Coverage
    from measureformer.attention import Grid as Grid
    from measureformer.attention import Plan as Plan
    from measureformer.attention import Sharded as Sharded
    from measureformer.attention import Streaming as Streaming
    from measureformer.attention import attend as attend
    from measureformer.attention import concentration as concentration
    from measureformer.attention import coverage as coverage
    from measureformer.distributed import join_workers as join_workers
    from measureformer.errors import MeasureformerError as MeasureformerError
    from measureformer.flows import flow as flow
    from measureformer.flows import gaussian_flow as gaussian_flow
    from measureformer.maps import MLP as MLP
    from measureformer.maps import AbstractInContextMap as AbstractInContextMap
    from measureformer.maps import AffineAttention as AffineAttention
    from measureformer.maps import Attention as Attention
    from measureformer.maps import Causal as Causal
    from measureformer.maps import GatedMLP as GatedMLP
    from measureformer.maps import HardmaxAttention as HardmaxAttention
    from measureformer.maps import Identity as Identity
    from measureformer.maps import L2Attention as L2Attention
    from measureformer.maps import LayerNorm as LayerNorm
    from measureformer.maps import Linear as Linear
    from measureformer.maps import LinearAttention as LinearAttention
    from measureformer.maps import Positional as Positional
    from measureformer.maps import PositionTable as PositionTable
    from measureformer.maps import Residual as Residual
    from measureformer.maps import RMSNorm as RMSNorm
    from measureformer.maps import RotaryAttention as RotaryAttention
    from measureformer.maps import SinkhornAttention as SinkhornAttention
    from measureformer.maps import Sinusoidal as Sinusoidal
    from measureformer.maps import Transformer as Transformer
    from measureformer.maps import UnitNorm as UnitNorm
    from measureformer.maps import UnnormalizedAttention as UnnormalizedAttention
    from measureformer.maps import first_variation as first_variation
    from measureformer.measures import Ball as Ball
    from measureformer.measures import Box as Box
    from measureformer.measures import Discrete as Discrete
    from measureformer.measures import Gaussian as Gaussian
    from measureformer.measures import GaussianMixture as GaussianMixture
    from measureformer.measures import SpaceTime as SpaceTime
    from measureformer.measures import gather as gather
    from measureformer.measures import shard as shard
    from measureformer.measures import subset_sum_gap as subset_sum_gap
    from measureformer.refs import cite as cite
    from measureformer.regularity import local_lipschitz as local_lipschitz
    from measureformer.report import save_figure as save_figure
    from measureformer.result import Check as Check
    from measureformer.result import Figure as Figure
    from measureformer.result import Outcome as Outcome
    from measureformer.result import Result as Result
    from measureformer.result import Series as Series
    from measureformer.structure import is_support_preserving as is_support_preserving
    from measureformer.structure import is_transformer as is_transformer
    from measureformer.structure import recover as recover
    from measureformer.structure import regular_derivative as regular_derivative
    from measureformer.training import use_cores as use_cores
    from measureformer.transport import conditional_wasserstein as conditional_wasserstein
    from measureformer.transport import coupling as coupling
    from measureformer.transport import positive_wasserstein as positive_wasserstein
    from measureformer.transport import sinkhorn as sinkhorn
    from measureformer.transport import sliced_wasserstein as sliced_wasserstein
    from measureformer.transport import transport_cost as transport_cost
    from measureformer.transport import wasserstein as wasserstein
    from measureformer.transport import wasserstein_bracket as wasserstein_bracket
    from measureformer.workers import Workers as Workers
    from measureformer.workers import sweep as sweep


def __getattr__(name: str) -> Any:
    if name in _NAMESPACES:
        return importlib.import_module(f"measureformer.{name}")
    if name not in _HOME_OF:
        _refuse_name(sys.modules[__name__], name)
    return getattr(importlib.import_module(f"measureformer.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF, *_NAMESPACES})


def _refuse_name(module: ModuleType, name: str) -> NoReturn:
    """A refusal with the nearest names: Python's own hint is not seen in notebooks."""
    from measureformer.errors import did_you_mean

    public = (*_HOME_OF, *_NAMESPACES) if module.__name__ == __name__ else dir(module)
    hint = did_you_mean(name, [one for one in public if not one.startswith("_")])
    said = f"module {module.__name__!r} has no attribute {name!r}. "
    # without `obj`, lest Python ask the same question after ours
    raise AttributeError(said + (hint or f"dir({module.__name__}) lists what it has."), name=name)


class _Package(ModuleType):
    def __setattr__(self, name: str, value: Any) -> None:
        """Python sets each module of the package here, once it is loaded: those for users get the same refusal."""
        if name in _NAMESPACES:
            vars(value).setdefault("__getattr__", partial(_refuse_name, value))
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
