"""measureformer: a layer is a function of a measure and a point; applying it is a push-forward.

The public names are in `__init__.pyi`. Importing the package loads neither JAX nor SciPy: names are resolved on first
use (PEP 562).
"""

from __future__ import annotations

import os as _os
import sys as _sys

import lazy_loader as _lazy_loader

from measureformer.errors import suggest_names as _suggest_names

__version__ = "0.1.0"

if "JAX_ENABLE_X64" not in _os.environ:
    _os.environ["JAX_ENABLE_X64"] = "1"
    if "jax" in _sys.modules:
        # JAX reads the variable when it is imported, which has already happened
        _sys.modules["jax"].config.update("jax_enable_x64", True)

_resolve, __dir__, __all__ = _lazy_loader.attach_stub(__name__, __file__)
__getattr__ = _suggest_names(__name__, _resolve)
