"""`conditional_wasserstein`: mass moves in space but not in time. The distance in which causal layers are Lipschitz."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import DtypeError, MassError, OptionError
from measureformer.measures import SpaceTime
from measureformer.transport.exact import on_host
from measureformer.transport.intake import compared, exponent
from measureformer.transport.sparse import Atoms, SparseCoupling, coupling_cost, largest_move, lengths, root
from measureformer.transport.wasserstein import optimal_coupling


def conditional_wasserstein(mu: SpaceTime, nu: SpaceTime, p: float = 2) -> Float[Array, ""]:
    """(∫ W_p(mu(·|t), nu(·|t))^p dmu(t))^{1/p}: mass moves in space but not in time.

    With one token per time it is the root mean p-th power of |x_i − y_i|. Goes through jit, grad and vmap; derivatives
    are along measures whose time marginals stay equal.

    Arguments:
        mu: first measure; several atoms may share a time.
        nu: second measure, with the same mass at every time.
        p: exponent, finite and ≥ 1.

    Statement   W_p^cond ≥ W_p on space–time: couplings that keep the time are couplings
    Ref         castin2024.

    >>> import measureformer as mf
    >>> mu, nu = mf.SpaceTime.sequence([[0.0], [1.0]]), mf.SpaceTime.sequence([[1.0], [0.0]])
    >>> float(mf.conditional_wasserstein(mu, nu)), float(mf.wasserstein(mu.space(), nu.space()))
    (1.0, 0.0)
    """
    p = exponent(p)
    if p == math.inf:
        raise OptionError(got="p = inf", need="a finite p", do="Take a large one: the distance increases in p.")
    for sigma in (mu, nu):
        if not isinstance(sigma, SpaceTime):  # pyright: ignore[reportUnnecessaryIsInstance] users pass anything
            raise DtypeError(
                got=f"a {type(sigma).__name__}",
                need="two SpaceTime measures",
                do="mf.SpaceTime.sequence(points) puts token i of n at time i/n.",
            )
    pair = compared(mu, nu)
    atoms = pair.atoms
    assert atoms is not None
    # every move keeps the time, which is the last coordinate, so lengths in space–time are lengths in space
    scale, power = coupling_cost(atoms, on_host(_plan, atoms, p), p)
    return pair.result(scale * root(power, p) * pair.masses[0] ** (1 / p))


def _plan(atoms: Atoms, p: float) -> SparseCoupling:
    """An optimal plan at every time, put together; times with one atom on either side leave no choice."""
    group_x, group_y, share = _groups(atoms)
    count_x, count_y = (np.bincount(g[g >= 0], minlength=len(share)) for g in (group_x, group_y))
    only_x, only_y = (_some_member(group, len(share)) for group in (group_x, group_y))
    to_one = np.flatnonzero((group_y >= 0) & (count_x[group_y] == 1))
    from_one = np.flatnonzero((group_x >= 0) & (count_x[group_x] > 1) & (count_y[group_x] == 1))
    i = [only_x[group_y[to_one]], from_one]
    j = [to_one, only_y[group_x[from_one]]]
    mass = [atoms.b[to_one], atoms.a[from_one]]
    plans = []
    for time in np.flatnonzero((count_x > 1) & (count_y > 1)):
        rows, columns = np.flatnonzero(group_x == time), np.flatnonzero(group_y == time)
        a, b = atoms.a[rows], atoms.b[columns]
        plan = optimal_coupling(
            Atoms(atoms.x[rows, :-1], a / a.sum(), atoms.y[columns, :-1], b / b.sum()), p, potentials=True
        )
        i, j, mass = [*i, rows[plan.i]], [*j, columns[plan.j]], [*mass, share[time] * plan.mass]
        plans.append((rows, columns, plan))
    f, g = np.zeros(len(atoms.a)), np.zeros(len(atoms.b))
    scale = largest_move(lengths(atoms.x[np.concatenate(i)] - atoms.y[np.concatenate(j)]), np.concatenate(mass))
    g[j[0]] = (lengths(atoms.x[i[0]] - atoms.y[j[0]]) / scale) ** p
    f[i[1]] = (lengths(atoms.x[i[1]] - atoms.y[j[1]]) / scale) ** p
    for rows, columns, plan in plans:
        f[rows], g[columns] = ((plan.scale / scale) ** p * potential for potential in (plan.f, plan.g))
    return SparseCoupling(np.concatenate(i), np.concatenate(j), np.concatenate(mass), f, g, scale)


def _groups(atoms: Atoms) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each atom the number of its time, −1 without mass, and the mass of each time; refuse unequal marginals."""
    times = np.concatenate([atoms.x[:, -1], atoms.y[:, -1]])
    mass = np.concatenate([atoms.a, atoms.b])
    values, group = np.unique(times, return_inverse=True)
    of_x = np.arange(len(times)) < len(atoms.a)
    marginals = [np.bincount(group[side], mass[side], len(values)) for side in (of_x, ~of_x)]
    worst = int(np.abs(marginals[0] - marginals[1]).argmax())
    if abs(marginals[0][worst] - marginals[1][worst]) > 1e3 * np.finfo(atoms.a.dtype).eps:
        raise MassError(
            got=f"shares {marginals[0][worst]:.6g} and {marginals[1][worst]:.6g} of the mass at time {values[worst]:g}",
            need="equal time marginals, since no mass moves in time",
            do="Compare prompts with the same times and weights, or take mf.wasserstein on space–time.",
        )
    group = np.where(mass > 0, group, -1)
    return group[of_x], group[~of_x], marginals[0]


def _some_member(group: np.ndarray, count: int) -> np.ndarray:
    member = np.zeros(count, int)
    member[group[group >= 0]] = np.flatnonzero(group >= 0)
    return member
