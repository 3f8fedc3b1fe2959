"""How a flow is solved: solver and step control as diffrax objects, with names and numbers as shorthand."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from measureformer.attention.grid import Grid
from measureformer.errors import DtypeError, OptionError
from measureformer.numerics.checked import whole
from measureformer.numerics.types import Within

if TYPE_CHECKING:
    from diffrax import AbstractSolver, PIDController

    Solver = Literal["tsit5", "dopri8", "heun", "rk4", "euler"] | AbstractSolver[Any]
    Steps = int | PIDController
else:
    Solver = Steps = Any

EQUAL = Within(1, 10**7)
"""How many equal steps there may be between two times."""

SOLVERS = {"tsit5": "Tsit5", "dopri8": "Dopri8", "heun": "Heun", "rk4": "RK4", "euler": "Euler"}
"""Shorthand -> name of the class, in diffrax or in `rk4.py`."""


class Settings(eqx.Module):
    """How to solve."""

    solver: Any
    """Of diffrax."""
    control: Any
    """Of adaptive steps: a `PIDController` whose norm is `largest`. None for equal steps."""
    tol: Any = None
    """Of attention on a grid; None if it streams."""
    limit: int = eqx.field(static=True, default=4096)
    """Steps that an adaptive solver may take, rejected ones included."""


class Accuracy(NamedTuple):
    """What is chosen where the user says nothing."""

    solver: str = "tsit5"
    rtol: float = 1e-6
    atol: float = 1e-6
    # tokens that merge need steps at the limit of stability: with the error before last in view, none is rejected there
    gains: tuple[float, float] = (0.0, 1.0)
    """Of the proportional and the integral part of the control."""
    limit: int = 4096


def settings_of(solver: Solver | None, steps: Steps | None, default: Accuracy) -> tuple[Settings, int | None]:
    """Checked settings, and the number of equal steps between times; None for adaptive steps."""
    method = _method(default.solver if solver is None else solver)
    if isinstance(steps, int | np.integer):
        whole(steps, "steps", EQUAL)
        return Settings(method, None), int(steps)
    import diffrax

    if not isinstance(method, diffrax.AbstractAdaptiveSolver):
        raise OptionError(
            got=f'solver = "{name_of(method)}" without steps',
            need="a number of steps, since it does not know its error",
            do="Pass steps = 100, say, or leave the solver out.",
        )
    if steps is None:
        p, i = default.gains
        steps = diffrax.PIDController(default.rtol, default.atol, pcoeff=p, icoeff=i)
    return Settings(method, _control(steps), limit=default.limit), None


def with_grid(settings: Settings, method: Grid | str) -> Settings:
    """Settings for attention that is streamed, or follows plans for a grid."""
    if method == "streaming":
        return settings
    if not isinstance(method, Grid) or method.tol is None or method.plan is not None:
        raise OptionError(
            got=f"method = {method!r}" if not isinstance(method, Grid) else "a Grid with a plan or without tol",
            need='"streaming", or mf.Grid(tol=…)',
            do="Try mf.Grid(tol=1e-8); a flow makes its plans on the way.",
        )
    return dataclasses.replace(settings, tol=np.asarray(_share(method.tol, "tol")))


NUMBERS = ("rtol", "atol", "pcoeff", "icoeff", "dcoeff", "dtmin", "dtmax", "factormin", "factormax", "safety")


def control_numbers(settings: Settings) -> dict[str, float | None] | None:
    """The control of adaptive steps as JSON."""
    if settings.control is None:
        return None
    values = {name: getattr(settings.control, name) for name in NUMBERS}
    return {name: None if value is None else float(value) for name, value in values.items()}


def settings_from(about: dict[str, Any]) -> Settings | None:
    """Settings from the description of a saved flow; None, or an error of any kind, if it does not describe any."""
    import diffrax

    solver, numbers, tol = solver_of(about["solver"]), about["control"], about["tol"]
    if solver is None or about["limit"] < 1:
        return None
    control = None if numbers is None else _control(diffrax.PIDController(**{n: numbers[n] for n in NUMBERS}))
    return Settings(solver, control, None if tol is None else np.asarray(_share(tol, "tol")), about["limit"])


def name_of(solver: Any) -> str:
    """The shorthand, or the name of the class."""
    kind = type(solver).__name__
    return next((name for name, known in SOLVERS.items() if known == kind), kind)


def solver_of(kind: str) -> Any:
    """The explicit method of this class name in diffrax or here; None if there is none."""
    import diffrax

    from measureformer.flows.rk4 import RK4

    found = RK4 if kind == "RK4" else getattr(diffrax, kind, None)
    if not isinstance(found, type) or not issubclass(found, (diffrax.AbstractERK, diffrax.Euler)):
        return None
    return None if found is diffrax.AbstractERK else found()


def largest(tree: Any) -> Array:
    """The largest coordinate: unlike a mean over tokens, it is the same if tokens are repeated or pad rows added."""
    return jnp.max(jnp.stack([jnp.max(jnp.abs(leaf)) for leaf in jax.tree.leaves(tree) if leaf.size]))


def _method(solver: Any) -> Any:
    found = solver_of(SOLVERS.get(solver, "") if isinstance(solver, str) else type(solver).__name__)
    if found is None:
        raise OptionError(
            got=f"solver = {solver!r}",
            need=f"one of {', '.join(SOLVERS)}, or an explicit Runge–Kutta method of diffrax",
            do="Leave it out for the default, or pass diffrax.Dopri5(), say.",
        )
    return found if isinstance(solver, str) else solver


def _control(steps: Any) -> Any:
    import diffrax

    if not isinstance(steps, diffrax.PIDController):
        raise DtypeError(
            got=f"steps = {steps!r}",
            need="a number of equal steps between times, or a diffrax.PIDController",
            do="Pass steps=100, or steps=diffrax.PIDController(rtol=1e-8, atol=1e-8).",
        )
    if steps.norm not in (diffrax.PIDController(1.0, 1.0).norm, largest):
        raise OptionError(
            got="a PIDController with a norm of its own",
            need="the largest coordinate, which does not change when tokens are repeated",
            do="Leave norm out: mf.flow puts its own in place.",
        )
    tolerances = {name: np.asarray(_share(getattr(steps, name), name)) for name in ("rtol", "atol")}
    return dataclasses.replace(steps, norm=largest, **tolerances)


def _share(value: Any, name: str) -> float:
    if not (np.ndim(value) == 0 and 0 < float(value) < 1):
        raise OptionError(got=f"{name} = {value!r}", need="a number between 0 and 1", do="Leave it out.")
    return float(value)
