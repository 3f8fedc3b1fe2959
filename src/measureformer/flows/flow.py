"""`flow`: a very deep transformer. What moves may be atoms, a Gaussian or a density on a grid."""

from __future__ import annotations

from typing import Any, Literal, overload

from measureformer.attention.grid import Grid
from measureformer.errors import NoClosedFormError, OptionError
from measureformer.flows.density import Density, DensityTrajectory, move_density
from measureformer.flows.gaussian import PRECISE, GaussianTrajectory, move_gaussian
from measureformer.flows.particles import Trajectory, move_particles
from measureformer.flows.schedule import checked_times, scheduled
from measureformer.flows.settings import Solver, Steps, settings_of, with_grid
from measureformer.flows.trajectory import AbstractTrajectory
from measureformer.flows.velocity import Velocity, checked_layers
from measureformer.measures import Gaussian
from measureformer.measures.atomic import AbstractAtomic
from measureformer.measures.base import AbstractMeasure
from measureformer.numerics.arrays import cast, common_dtype, is_traced
from measureformer.numerics.checked import checked
from measureformer.numerics.types import ArrayLike, PathLike
from measureformer.parallel.workers import collective


@overload
def flow(
    velocity: Velocity,
    mu: Gaussian,
    times: ArrayLike,
    *,
    solver: Solver | None = ...,
    steps: Steps | None = ...,
) -> GaussianTrajectory: ...


@overload
def flow(velocity: Velocity, mu: Density, times: ArrayLike) -> DensityTrajectory: ...


@overload
def flow(
    velocity: Velocity,
    mu: AbstractAtomic,
    times: ArrayLike,
    *,
    solver: Solver | None = ...,
    steps: Steps | None = ...,
    method: Literal["streaming"] | Grid = ...,
    save: PathLike | None = ...,
) -> Trajectory: ...


@collective()
@checked
def flow(
    velocity: Velocity,
    mu: AbstractMeasure | Density,
    times: ArrayLike,
    *,
    solver: Solver | None = None,
    steps: Steps | None = None,
    method: Literal["streaming"] | Grid = "streaming",
    save: PathLike | None = None,
) -> AbstractTrajectory:
    """The measures mu_t that start from mu at times[0] and move with the velocity: ∂_t mu + div(mu v[mu]) = 0.

    The kind of measure decides how: atoms move as particles; a `Gaussian` by the equations of its mean and covariance,
    until it blows up; a `Density` by finite volumes. With `mf.Tangent(G)` tokens stay on the unit sphere, and
    `mf.Rescaled(G)` follows tokens that grow exponentially in the coordinates in which they converge.

    Steps are adaptive by default, with the error of each coordinate below atol + rtol · |x|. Euler's method with
    `steps=k` on the times [0, T] is a residual network: `Residual(velocity, T / k)` composed k times.

    Flows of atoms and Gaussians are differentiable in the parameters and in mu, and traceable by jit and vmap, with
    concrete times and options; there a failure gives NaN. Reverse mode stores a few dozen states however many steps
    there are. On a grid, with `save`, and on a measure spread over a mesh, which stays spread, there are no
    derivatives.

    Arguments:
        velocity: an in-context map of R^d to itself. A sequence of maps with arrays of the same shapes shares the time
            equally: the parameters θ(t) of a network, constant on pieces of its depth.
        mu: the measure that moves: atoms, whose times are carried if there are any, a `Gaussian` or a `Density`.
        times: increasing output times, (t,); the first is the time of mu.
        solver: an explicit Runge–Kutta method of diffrax, or "tsit5", "dopri8", "heun", "rk4" or "euler", of which the
            last two require a number of steps. By default "tsit5"; "dopri8" for Gaussians, `Tangent` and `Rescaled`.
        steps: number of equal steps between consecutive times, without error control; or the control of adaptive steps,
            `diffrax.PIDController(rtol=…, atol=…)`. By default both tolerances are 1e-6 (1e-4 and 1e-5 in float32),
            1e-10 for Gaussians, 1e-9 for `Tangent` and `Rescaled`.
        method: `mf.Grid(tol=…)` computes attention on a grid, in time linear in the number of tokens, for heads of
            dimension at most 3. Every value and log-normaliser of every head is proven to be within `tol`; the largest
            bound is `error_bound`. A step that leaves the cells of its plan is repeated with a new one.
        save: folder that keeps the run on disk. The same call resumes an interrupted run, with the same bits as an
            uninterrupted one, and reads a finished one; `mf.flows.load_flow` reads either.

    Cost        six velocities for each step of "tsit5"; no new compilation for another n or other times.
    Ref         furuya2025, equations (9) to (14); sander2022; castin2025 for Gaussians; geshkovski2023 on the sphere.

    >>> import measureformer as mf
    >>> G = mf.Attention.head([[0.0]], [[0.0]], [[1.0]])        # v[mu](x) = mean of mu
    >>> traj = mf.flow(G, mf.Discrete.uniform([[0.0], [2.0]]), [0.0, 1.0])
    >>> traj.measures[-1].points.round(3).tolist(), traj.map(1.0)(traj.initial, [5.0]).round(3).tolist()
    ([[1.718], [3.718]], [6.718])
    >>> G = mf.Attention.head([[1.0]], [[1.0]], [[1.0]])
    >>> traj = mf.flow(G, mf.Gaussian([1.0], [[1.0]]), [0.0, 0.25, 0.6])
    >>> traj.covs[:, 0, 0].round(6).tolist(), traj.means[1].round(6).tolist(), round(traj.blow_up, 6)
    ([1.0, 2.0], [1.815886], 0.5)
    """
    layers, moments = checked_layers(velocity), checked_times(times)
    if isinstance(mu, (Gaussian, Density)):
        _refuse_options(mu, method=method, save=save)
        if isinstance(mu, Density):
            _refuse_options(mu, solver=solver, steps=steps)
            return move_density(layers, mu, moments)
        settings, count = settings_of(solver, steps, PRECISE)
        if count is not None:
            raise OptionError(
                got=f"steps = {count} for a Gaussian",
                need="adaptive steps",
                do="Equal steps of Euler's method are mf.Residual(G, step).push(gaussian), repeated.",
            )
        return move_gaussian(layers, mu, moments, settings)
    for G in layers.maps:
        G.check_meets(mu, getattr(mu, "times", None))
    if not isinstance(mu, AbstractAtomic):
        raise NoClosedFormError(
            got=f"the flow of {type(layers.maps[0]).__name__} on a {type(mu).__name__}",
            need="atoms, or a Gaussian; a mixture does not stay one",
            do="Take atoms first: mu.discretize(n), or mu.sample(key, n).",
        )
    dtype = common_dtype(layers, mu)
    settings, count = settings_of(solver, steps, layers.accuracy(mu, dtype))
    if not is_traced(layers, mu):
        # before a change of precision, which tokens on the sphere would show
        layers.refuse_values(mu, moments)
    schedule = scheduled(moments, len(layers.maps), count)
    layers, initial = cast((layers, mu), dtype)
    return move_particles(layers, initial, schedule, with_grid(settings, method), save)


def _refuse_options(mu: Any, **options: Any) -> None:
    for name, value in options.items():
        if value is not None and value != "streaming":
            raise OptionError(
                got=f"{name} for a {type(mu).__name__}",
                need="a measure with atoms",
                do=f"Leave {name} out, or take atoms first.",
            )
