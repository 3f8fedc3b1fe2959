"""`is_transformer`: the theorem as one call, on a black box."""

from __future__ import annotations

import equinox as eqx
import numpy as np

from measureformer.errors import SupportError
from measureformer.measures.domain import AbstractDomain
from measureformer.numerics.arrays import positive_int
from measureformer.numerics.checked import checked
from measureformer.numerics.random import generator
from measureformer.numerics.types import Key
from measureformer.structure.black_box import Atoms, BlackBox, MeasureMap, w1
from measureformer.structure.continuity import (
    Continuity,
    JumpWitness,
    Verdict,
    derivative_search,
    image_size,
    measure_search,
)
from measureformer.structure.obstruction import LARGEST, obstruction
from measureformer.structure.probes import admitted, random_measure
from measureformer.structure.recover import Recovered, recover
from measureformer.structure.support import SupportReport, SupportWitness, searched

HELD_OUT = 6
REPRODUCED = 1e-6
"""W_1 between f(mu) and G(mu, ·)♯mu on held-out measures, as a share of the size of the image, that is accepted."""


class TransformerReport(eqx.Module):
    """What `is_transformer` found: a verdict with its reason, the recovered map, and the evidence."""

    verdict: Verdict
    reason: str
    """"f discontinuous", "support", "derivative", "no violation found in N trials", or what is undecided."""
    map: Recovered | None
    """The in-context map, if f is representable as far as the search can tell."""
    witness: SupportWitness | JumpWitness | None
    trials: int
    calls: int
    """Evaluations of f."""
    itself: Continuity
    """The search for jumps of f in W_1."""
    support: SupportReport | None
    derivative: Continuity | None
    held_out: float
    """The largest W_1(f(mu), G(mu, ·)♯mu) on measures that the searches have not seen; NaN if it was not reached."""
    unreachable: float
    """If f does not preserve support: the smallest W_1 distance of any push-forward of the witness to its image."""
    scale: float
    """Diameter of the image of a cloud that fills the domain."""
    box: BlackBox
    domain: AbstractDomain

    @property
    def lipschitz(self) -> float:
        """The largest ratio of differences of G to distances that was seen: a lower bound of its constant."""
        return float("nan") if self.derivative is None else self.derivative.lipschitz

    def report(self) -> str:
        """The evidence in sentences."""
        lines = [f"{self.verdict}: {self.reason}", f"  f itself     {self._of(self.itself)}"]
        if self.support is not None:
            lines.append(f"  support      {self.support}")
        if self.derivative is not None:
            lines.append(f"  derivative   {self._of(self.derivative)}")
        if self.unreachable == self.unreachable:
            lines.append(f"  obstruction  no push-forward of the witness is closer than W_1 = {self.unreachable:.4g}")
        if self.held_out == self.held_out:
            lines.append(f"  held out     W_1(f(mu), G(mu, ·)♯mu) ≤ {self.held_out:.2g} on {HELD_OUT} other measures")
            lines.append(f"  constant     ratios of G up to {self.lipschitz:.4g}: a lower bound of its constant")
        lines.append(f"  {self.calls} evaluations of f; a search finds violations and proves nothing")
        return "\n".join(lines)

    @staticmethod
    def _of(part: Continuity) -> str:
        return (
            str(part)
            if part.witness
            else f"no jump on {part.trials} paths" + (", but ratios blow up (a hint only)" if part.blow_up else "")
        )


@checked
def is_transformer(f: MeasureMap, domain: AbstractDomain, key: Key, *, trials: int = 16) -> TransformerReport:
    """Decide whether a continuous in-context map represents a black box f between measures.

    Searches, in this order, for jumps of f in W_1, for atoms that f splits or reweights, and for jumps of its regular
    derivative; the first one found decides and is the witness. If there is none, it recovers G and compares
    f(mu) with G(mu, ·)♯mu on held-out measures. "representable" is evidence from that many trials, not a proof.

    Arguments:
        f: the black box; it is called about 1000 times.
        domain: the compact set on which the measures live, such as `mf.Box(low, high)`.
        key: JAX random key of the searches.
        trials: number of paths of each search.

    Statement   for f continuous in W_1: f(mu) = G(mu, ·)♯mu with continuous G iff f is support preserving and its
                regular derivative D̄f is uniformly continuous
    Hypotheses  searched: continuity of f.
    Ref         furuya2025, Theorem 1.

    >>> import jax, measureformer as mf
    >>> box, key = mf.Box([-1.0], [1.0]), jax.random.key(0)
    >>> f = mf.Residual(mf.Attention.head([[1.0]], [[1.0]], [[0.5]])).push
    >>> found = mf.is_transformer(f, box, key, trials=6)
    >>> found.verdict, found.map(mf.Discrete.uniform([[0.0], [1.0]]), [0.0]).round(6).tolist()
    ('representable', [0.25])
    >>> mf.is_transformer(mf.structure.counterexample(), box, key).reason
    'derivative'
    """
    box, rng = BlackBox.of(f), generator(key)
    trials = positive_int(trials, "trials")
    scale = image_size(box, domain, rng)
    itself = measure_search(box, domain, rng, trials, scale)
    if itself.witness is not None:
        return _rejected("f discontinuous", itself.witness, (box, domain), scale, itself)
    support = searched(box, domain, rng, trials)
    if support.witness is not None:
        return _rejected("support", support.witness, (box, domain), scale, itself, support)
    G = recover(box)
    derivative = derivative_search(G, domain, rng, trials, scale)
    if derivative.witness is not None:
        reason = "f discontinuous" if _felt(box, domain, derivative.witness) else "derivative"
        return _rejected(reason, derivative.witness, (box, domain), scale, itself, support, derivative)
    total = itself.trials + support.total + derivative.trials
    held_out = _held_out(G, domain, rng)
    doubts = [
        text
        for doubt, text in (
            (itself.verdict != "representable", "f changes too slowly towards a limit to tell whether it jumps"),
            (derivative.verdict != "representable", "the derivative was not read everywhere, or changes too slowly"),
            (not held_out <= REPRODUCED * scale, f"the recovered map misses f by W_1 = {held_out:.2g}"),
        )
        if doubt
    ]
    verdict: Verdict = "inconclusive" if doubts else "representable"
    reason = "; ".join(doubts) or f"no violation found in {total} trials"
    nothing = float("nan")
    return TransformerReport(
        verdict, reason, G, None, total, box.calls, itself, support, derivative, held_out, nothing, scale, box, domain
    )


def _felt(box: BlackBox, domain: AbstractDomain, witness: JumpWitness) -> bool:
    """Whether f itself jumps if the query that does carries half of the mass: then the hypothesis fails already."""
    ends = []
    for mu, x in ((witness.first, witness.first_query), (witness.second, witness.second_query)):
        points = np.concatenate([np.asarray(mu.points), np.asarray(x)[None]])
        ends.append(box.image(admitted(domain, points, np.append(np.asarray(mu.weights), 1.0))))
    return w1(*ends) > 0.1 * witness.jump


def _rejected(
    reason: str,
    witness: SupportWitness | JumpWitness,
    place: tuple[BlackBox, AbstractDomain],
    scale: float,
    itself: Continuity,
    support: SupportReport | None = None,
    derivative: Continuity | None = None,
) -> TransformerReport:
    box, domain = place
    total = sum(part.trials for part in (itself, derivative) if part) + (support.total if support else 0)
    nothing, unreachable = float("nan"), float("nan")
    if isinstance(witness, SupportWitness) and witness.kind != "separated" and witness.mu.n <= LARGEST:
        unreachable = obstruction(witness.mu, witness.nu).lower
    return TransformerReport(
        "not representable",
        reason,
        None,
        witness,
        total,
        box.calls,
        itself,
        support,
        derivative,
        nothing,
        unreachable,
        scale,
        box,
        domain,
    )


def _held_out(G: Recovered, domain: AbstractDomain, rng: np.random.Generator) -> float:
    """The largest W_1(f(mu), G(mu, ·)♯mu) over measures of other sizes than those of the searches, or infinity."""
    worst = 0.0
    for k in range(HELD_OUT):
        mu = random_measure(domain, rng, 7 + 6 * k, weights=("equal", "random")[k % 2])
        try:
            values = G.read(mu, mu.points)
        except SupportError:
            return float("inf")
        worst = max(worst, w1(Atoms(values, mu.weights), G.box.image(mu)))
    return worst
