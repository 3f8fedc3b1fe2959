"""The run-time checker of annotations that `conftest.py` applies to the package."""

from __future__ import annotations

from typing import Literal, Self

from beartype import BeartypeConf, FrozenDict, beartype

_LIBRARY_REFUSES = {
    # jaxtyping decorates methods one by one, and outside a decorated class beartype refuses Self
    Self: object,
    # a wrong choice is answered by the library's own sentence, which the tests want to read
    Literal["auto", "streaming", "grid"]: object,
    Literal["layer", "rms", "none"]: object,
    Literal["whole", "part"]: object,
    Literal["positive", "probability"]: object,
    Literal["tsit5", "dopri8", "heun", "rk4", "euler"]: object,
    Literal["euler", "rk4"]: object,
    Literal["adam", "descent"]: object,
    Literal["logistic", "exponential", "linear"]: object,
    Literal["frobenius", "nuclear"]: object,
    Literal["gd", "ngd", "polyak", "momentum", "adam", "sign"]: object,
    Literal["random", "picture", "prompt", "several", "orthonormal", "G1", "G2", "G3", "G4", "G5"]: object,
    Literal["hebb", "pseudo-inverse"]: object,
    Literal["asynchronous", "synchronous"]: object,
    Literal["all", "each", "errors"]: object,
    Literal["classical", "dense", "modern"]: object,
    Literal["bottom", "top", "left", "right"]: object,
    Literal["practical", "certified"]: object,
    Literal["relu", "quadratic"]: object,
    Literal["layer", "none"]: object,
    Literal["sequence", "measure"]: object,
    Literal["square", "logistic"]: object,
    Literal["adam", "sgd", "momentum", "normalized", "sign"]: object,
    Literal["characters", "byte pairs"]: object,
}
function = beartype(conf=BeartypeConf(hint_overrides=FrozenDict(_LIBRARY_REFUSES)))
