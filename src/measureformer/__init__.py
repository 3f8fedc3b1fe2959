"""A layer is a function of a measure and a point, `G(mu, x)`; applying it is a push-forward.

    import measureformer as mf

    mu = mf.Discrete.uniform(points)         a measure; also mf.Gaussian, mf.GaussianMixture, mf.SpaceTime
    G = mf.Attention.head(Q, K, V)           a layer; combine with @, +, mf.Residual, mf.MLP, mf.Causal
    G(mu, x), G.push(mu)                     its value at a point; all atoms moved
    mf.flow(G, mu, times)                    infinite depth
    mf.wasserstein(mu, nu)                   distances; mf.coupling, mf.sinkhorn
    mf.local_lipschitz(G, mu)                smoothness, from below and certified from above
    mf.attend(q, k, v)                       attention on arrays, with an error bound
    mf.is_transformer(f, domain, key)        whether a black box is a transformer; mf.recover
    mf.plot(mu)                              a figure of a measure, a flow, a spectrum, a result
    mf.claims(), mf.check(name)              theorems, checked against false variants

Chapters have further names, which `help(mf.flows)` and `dir(mf.flows)` list:

    measures     attention    maps        transport      regularity
    flows        clustering   mean_field  structure      memory
    universality implicit_bias incontext  sequences      text        lens
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

# the names in `__init__.pyi` are resolved on first use (PEP 562): importing the package loads neither JAX nor SciPy
_resolve, _, __all__ = _lazy_loader.attach_stub(__name__, __file__)
__getattr__, __dir__ = _suggest_names(__name__, _resolve)
