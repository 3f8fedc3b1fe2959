"""`local_lipschitz`: how much a layer stretches small displacements of a cloud."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from measureformer.errors import DtypeError, NotFiniteError, OptionError
from measureformer.maps.base import AbstractInContextMap, no_closed_form
from measureformer.maps.call import measured, refuse_input, refuse_part
from measureformer.measures.atomic import AbstractAtomic, concrete
from measureformer.numerics.arrays import at_once, positive_int, prng_key
from measureformer.numerics.checked import checked
from measureformer.numerics.lanczos import SingularTriple, top_singular
from measureformer.numerics.norms import norms
from measureformer.numerics.types import Key
from measureformer.regularity.certificate import SAFETY, has_certificate, upper_bound

SAMPLES = 2
"""How often J U is computed from numbers changed in their last places."""


class LocalLipschitz(eqx.Module):
    """A bracket of the local Lipschitz constant, with the evidence for it; see `local_lipschitz`."""

    lower: float
    """|J U|/|U| for a displacement U that was found, less `SAFETY` times what roundings were measured to change."""
    upper: float
    """A certified bound; infinite for maps without one."""
    residual: float
    """A singular value of the derivative lies within this distance of `lower`."""
    converged: bool
    """Whether the residual is at most `tol` times `lower` (in single precision 6e-6 times it), and the rounding term is
    at most that, or 2e-4 times it in single precision; never where an atom is so light that products with the root of
    its mass may underflow."""
    iterations: int
    """Products with the derivative and with its transpose."""

    @property
    def gap(self) -> float:
        """upper/lower − 1: how much the certificate leaves open."""
        return self.upper / self.lower - 1 if self.lower > 0 else (math.inf if self.upper > 0 else 0.0)


@checked
def local_lipschitz(
    G: AbstractInContextMap,
    mu: AbstractAtomic,
    *,
    tol: float = 1e-6,
    max_iterations: int = 500,
    key: Key | None = None,
) -> LocalLipschitz:
    """Lower and upper bound of the local Lipschitz constant of the token map of G at the atoms of mu.

    All atoms move, as queries and as context: X ↦ (G(mu_X, x_i))_i. The constant is the norm of its derivative in
    L²(mu): what mu ↦ G(mu, ·)♯mu does to small distances W_2 (on a `SpaceTime`, to W_2 conditioned on time) when atoms
    move and do not split. Repeated tokens may move apart, one heavy atom may not; the upper value is the same for both.
    Atoms without mass do not count.

    The lower value comes from Lanczos' iteration, in memory linear in n, for every map. The upper one comes from the
    exact derivative with measured quantities, for softmax attention (causal or not), perceptrons, normalisations,
    residuals, sums and compositions of them, and is infinite for other maps. It holds in exact arithmetic and is
    enlarged by bounds for the rounding; see `measureformer.regularity.certificate`. The rounding of the lower value is
    estimated: by its changes when points, weights and parameters change in their last places.

    Arguments:
        G: a map.
        mu: the tokens: a `SpaceTime` if G needs times, otherwise any measure with atoms.
        tol: the iteration ends when its residual is at most tol times the lower value; between 0 and 1.
        max_iterations: it ends after this many iterations in any case.
        key: random key of the start of the iteration; by default `jax.random.key(0)`.

    Statement   lower ≤ ‖D(X ↦ G(mu_X, X))‖_{L²(mu)} ≤ upper
    Sharp?      the upper value is exact at A = 0; on two clusters it is less than twice the lower one.
    Cost        lower value: about six evaluations of G.push(mu) for each iteration; usually 10 to 50 iterations. Upper
                value: for each token and each map of single points a d×d derivative and its norm, O(d³), up to d = 256;
                beyond that O(d² + n d). In deep stacks with d near 256 this takes most of the time.
    Ref         castin2024, with a sharper bound of the mixing part.

    >>> import numpy as np, measureformer as mf
    >>> G = mf.Attention.head([[0.0]], [[0.0]], [[2.0]])
    >>> found = mf.local_lipschitz(G, mf.Discrete.weighted([[0.0], [1.0]], [1.0, 3.0]))
    >>> round(found.lower, 9), round(found.upper, 9), found.converged
    (2.0, 2.0, True)
    """
    _check(G, mu, tol)
    max_iterations = positive_int(max_iterations, "max_iterations")
    active = mu.rows(np.flatnonzero(np.asarray(mu.log_weights) > -math.inf))
    times = getattr(active, "times", None)
    refuse_input(G, active, active.points, times)
    start = at_once(jax.random.key, 0) if key is None else prng_key(key)
    found, upper = measured(G, constants, active, start, np.asarray(tol), np.asarray(max_iterations))
    lower, residual = float(found.value), float(found.residual)
    if not math.isfinite(lower + residual):
        refuse_part(G, active, active.points, times)
        raise NotFiniteError(
            got=f"a derivative of {G} that is not finite at the {active.n} atoms",
            need="a map that is differentiable there",
            do="Move the atoms off the singular point (norms at 0, kinks of infinite slope), or rescale them.",
        )
    return LocalLipschitz(lower, float(upper), residual, bool(found.converged), int(found.iterations))


def require_map(G: Any) -> None:
    """Refuse what is not a map."""
    if not isinstance(G, AbstractInContextMap):
        raise DtypeError(
            got=f"{type(G).__name__} in place of a map",
            need="an in-context map",
            do="Pass a layer such as mf.Attention first.",
        )


def ball_radius(radius: Any) -> float:
    """The radius of a ball, positive and finite."""
    if not (np.ndim(radius) == 0 and 0 < float(radius) < math.inf):
        raise OptionError(got=f"radius = {radius!r}", need="a finite number > 0", do="Pass the radius of the ball.")
    return float(radius)


def _check(G: Any, mu: Any, tol: Any) -> None:
    require_map(G)
    G.check_meets(mu, getattr(mu, "times", None))
    if not isinstance(mu, AbstractAtomic):
        raise no_closed_form(G, mu, "local Lipschitz constant")
    concrete((G, mu), "local_lipschitz")
    if not 0 < tol < 1:
        raise OptionError(got=f"tol = {tol!r}", need="a number between 0 and 1", do="Leave it out for 1e-6.")


def constants(
    G: AbstractInContextMap, mu: AbstractAtomic, key: Array, tol: Any, max_iterations: Any
) -> tuple[SingularTriple, Array]:
    """The attained constant with its evidence, and the certified one. Under `jit`."""
    start = jax.random.normal(key, mu.points.shape, mu.points.dtype)
    found = stretch(G, mu, start, tol=tol, max_iterations=max_iterations)
    found = _less_rounding(G, mu, found, tol)
    return found, upper_bound(G, mu) if has_certificate(G) else jnp.asarray(jnp.inf)


def _less_rounding(G: AbstractInContextMap, mu: AbstractAtomic, found: SingularTriple, tol: Any) -> SingularTriple:
    """The triple with a value that rounding has not raised, and converged only if rounding leaves the value certain."""
    eps, tiny = (float(getattr(jnp.finfo(found.value.dtype), name)) for name in ("eps", "tiny"))
    numbers, rest = eqx.partition((G, mu.points, mu.log_weights), eqx.is_inexact_array)

    def lost_in(sample: Array) -> Array:
        def changed(leaf: Array) -> Array:
            place = jnp.arange(leaf.size)
            # no pattern of the data agrees with this one; of two neighbours, one sample moves both to the same side,
            # and the other to different sides
            up = (jnp.sin(12.9898 * (1 + place.astype(leaf.dtype))) > 0) ^ ((sample * place) % 2 == 1)
            sign = jnp.where(up, 1, -1).reshape(leaf.shape).astype(leaf.dtype)
            # near the underflow threshold digits are lost absolutely: programs take denormals for 0
            near = (leaf != 0) & (jnp.abs(leaf) < tiny / eps)
            return leaf * (1 + eps * sign) + jnp.where(near, tiny * sign, 0)

        own, points, log_weights = eqx.combine(jax.tree.map(changed, numbers), rest)
        moved = eqx.tree_at(lambda mu: (mu.points, mu.log_weights), mu, (points, log_weights))
        still = jnp.zeros_like(points)
        image = jax.jvp(displaced(own, moved), (still,), (found.right.reshape(still.shape),))[1]
        # of the whole image: where it is changed at random, its length changes much less, and now and then not at all
        return norms(image.ravel() - found.value * found.left) / norms(found.right)

    changes = jax.lax.map(lost_in, jnp.arange(SAMPLES))
    lost = SAFETY * (jnp.max(changes) + eps * found.value)
    # products with a smaller root lose digits on their way
    light = jnp.any((_root(mu) < tiny / eps) & (mu.log_weights[:, None] > -jnp.inf))
    certain = (lost <= jnp.maximum(tol, 2000 * eps) * found.value) & ~light
    least = jnp.maximum(jnp.where(found.value > 0, found.value - lost, 0), 0)
    return eqx.tree_at(lambda f: (f.value, f.converged), found, (least, found.converged & certain))


def stretch(
    G: AbstractInContextMap, mu: AbstractAtomic, start: Array, *, tol: Any, max_iterations: Any
) -> SingularTriple:
    """The displacement of the atoms that the token map stretches most in L²(mu), as a singular triple. Under `jit`."""
    move = displaced(G, mu)
    still = jnp.zeros_like(mu.points)
    image, derivative = jax.linearize(move, still)
    transposed = jax.linear_transpose(derivative, still)
    return top_singular(
        lambda v: derivative(v.reshape(still.shape)).ravel(),
        lambda u: transposed(u.reshape(image.shape))[0].ravel(),
        jnp.where((mu.log_weights > -jnp.inf)[:, None], start, 0).ravel(),
        # residuals below the rounding of the products cannot be reached
        tol=jnp.maximum(tol, 50 * float(jnp.finfo(still.dtype).eps)),
        max_iterations=max_iterations,
    )


def _root(mu: AbstractAtomic) -> Array:
    """Roots of the normalised weights, (n, 1); 0 where they are no normal numbers."""
    root = jnp.exp((mu.log_weights - mu.log_mass) / 2)[:, None]
    return jnp.where(root >= jnp.finfo(root.dtype).tiny, root, 0)


def displaced(G: AbstractInContextMap, mu: AbstractAtomic) -> Callable[[Array], Array]:
    """The token map near mu in coordinates in which the norm of L²(mu) is Euclidean: √p_i U_i ↦ √p_i G(mu_{X+U}, ·)."""
    root = _root(mu)
    inverse = jnp.where(root > 0, 1 / jnp.where(root > 0, root, 1), 0)
    return lambda step: root * G.at_atoms(mu.with_points(mu.points + inverse * step))
