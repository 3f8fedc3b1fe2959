"""Support, continuity and the theorem: known answers, witnesses that are what they say, refusals."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import measureformer as mf
from measureformer.atlas.black_box import outcome, result
from measureformer.atlas.helpers.structure_zoo import zoo
from measureformer.atlas.result import Result
from measureformer.errors import (
    DimensionMismatchError,
    DomainError,
    DtypeError,
    MassError,
    NotDeterministicError,
    NotFiniteError,
    OptionError,
)
from measureformer.measures.domain import FixedTimes
from measureformer.structure.black_box import Atoms, BlackBox
from measureformer.structure.continuity import JumpWitness
from measureformer.structure.support import large_measure, violation
from measureformer.structure.weights import SubsetSums, binary_weights

KEY = jax.random.key(0)
LINE = mf.Box([-1.0], [1.0])
ZOO = zoo(KEY)
# the claim looks at all of them; these are one for each answer
SOME = ("ReLU", "signed root", "counterexample", "resampling", "smoothing", "causal, plain space–time")


def push(T: Any) -> Any:
    """mu ↦ T♯mu for a NumPy function of points."""
    return lambda mu: mu.push(lambda x: T(np.asarray(x)))


@pytest.mark.parametrize("name", SOME)
def test_the_zoo(name: str) -> None:
    animal = ZOO[name]
    found = mf.is_transformer(animal.f, animal.domain, jax.random.key(5), trials=4)
    assert found.verdict == ("not representable" if animal.reasons else "representable"), found.report()
    if animal.reasons:
        assert found.reason in animal.reasons
        assert found.witness is not None
        assert found.map is None
    else:
        assert found.reason.startswith("no violation found in ")
        assert found.map is not None
        assert found.held_out < 1e-9
        assert outcome(found).verdict == "holds"
    assert found.verdict in found.report()
    assert "proves nothing" in found.report()


def test_the_answer_as_a_result() -> None:
    found = result(mf.is_transformer(ZOO["ReLU"].f, LINE, KEY, trials=2), KEY, name="relu")
    assert found.passes
    assert Result.from_json(found.to_json()).to_json() == found.to_json()
    no = result(mf.is_transformer(ZOO["Bayes"].f, LINE, KEY, trials=2), KEY)
    assert no.verdict == "violated"
    assert [control.outcome.verdict for control in no.controls] == ["violated"]


def test_witnesses_show_what_they_claim() -> None:
    # a witness is evaluated again, from outside
    support = mf.is_transformer(ZOO["Bayes"].f, LINE, KEY, trials=3).witness
    assert isinstance(support, mf.structure.support.SupportWitness)
    assert support.kind == "reweighted"
    assert support.mu.n == 2  # of one atom no weight can change
    assert ZOO["Bayes"].f(support.mu).same_as(support.nu, 1e-9)
    jump = mf.is_transformer(ZOO["counterexample"].f, LINE, KEY, trials=6).witness
    assert isinstance(jump, JumpWitness)
    assert jump.first_query is not None
    G = mf.recover(ZOO["counterexample"].f)
    gap = np.linalg.norm(np.asarray(G(jump.first, jump.first_query) - G(jump.second, jump.second_query)))
    assert gap == pytest.approx(jump.jump, rel=1e-6)
    assert jump.jump == pytest.approx(0.5, abs=0.2)
    assert jump.distance < 1e-7
    # the sequence: distances halve, values stay apart
    assert np.all(np.diff(jump.distances) < 0)
    assert min(jump.jumps) > 0.25
    rank = mf.is_transformer(ZOO["rank"].f, LINE, KEY, trials=4).witness
    assert isinstance(rank, JumpWitness)
    assert rank.first_query is None
    images = [ZOO["rank"].f(mu) for mu in (rank.first, rank.second)]
    assert float(mf.wasserstein(*images, 1)) == pytest.approx(rank.jump, rel=1e-6)
    assert float(mf.wasserstein(rank.first, rank.second, 1)) <= rank.distance * (1 + 1e-6)


def test_ratios_that_blow_up_are_a_hint_only() -> None:
    root = mf.structure.continuity(ZOO["signed root"].f, LINE, KEY, trials=3)
    assert root.verdict == "representable"
    assert root.blow_up
    smooth = mf.structure.continuity(push(np.sin), LINE, KEY, trials=4)
    assert not smooth.blow_up
    assert 0.9 < smooth.lipschitz <= 1 + 1e-6
    assert np.all(np.diff(smooth.modulus) <= 0)  # distances fall, and the modulus with them


def test_jumps_at_points_of_the_plane_are_found() -> None:
    # kills: paths alone, which never meet a single point
    here = np.array([0.3137, -0.2718])

    def unit(x: np.ndarray) -> np.ndarray:
        return (x - here) / np.maximum(np.linalg.norm(x - here, axis=1, keepdims=True), 1e-300)

    found = mf.is_transformer(push(unit), mf.Ball([0.0, 0.0], 1.0), KEY, trials=4)
    assert found.reason == "f discontinuous"
    assert found.witness is not None
    assert np.allclose(found.witness.first_query, here, atol=1e-6)


def test_what_is_undecided_is_said() -> None:
    # 1/log(1/|x|) is continuous, but so slowly that no search can see the end of it
    def slow(x: np.ndarray) -> np.ndarray:
        return np.sign(x) / (1 - np.log(np.maximum(np.abs(x), 1e-300)))

    found = mf.is_transformer(push(slow), LINE, KEY, trials=2)
    assert found.verdict == "inconclusive"
    assert "slowly" in found.reason


class TestSupport:
    def test_splitting_in_a_corner_of_the_domain_is_found(self) -> None:
        def f(mu: mf.Discrete) -> mf.Discrete:
            near = float(np.asarray(mu.probabilities()) @ (np.abs(np.asarray(mu.points)[:, 0]) < 0.3))
            s = max(0.0, near - 0.9)
            return 0.5 * push(lambda x: x - s)(mu) + 0.5 * push(lambda x: x + s)(mu)

        found = mf.is_support_preserving(f, LINE, KEY)
        assert not found.holds
        assert found.witness is not None
        assert (found.witness.kind, found.witness.mu.n, found.witness.nu.n) == ("split", 1, 2)

    def test_what_forgets_weights_is_no_map_of_measures(self) -> None:
        # moves by the mean of the list of tokens: it notices when an atom is written twice
        found = mf.is_support_preserving(push(lambda x: x - x.mean(axis=0)), LINE, KEY)
        assert found.witness is not None
        assert found.witness.kind == "separated"

    def test_the_second_obstruction_is_found_by_equal_weights(self) -> None:
        def f(mu: mf.Discrete) -> mf.Discrete:
            twice = 1 + (np.asarray(mu.points)[:, 0] > 0)
            return mf.Discrete.weighted(mu.points, np.asarray(mu.probabilities()) * twice).normalized()

        mu = Atoms(np.array([[-1.0], [1.0]]), np.array([0.5, 0.5]))
        witness = violation(BlackBox(f), mu)
        assert witness is not None
        np.testing.assert_allclose(witness.nu.weights, [1 / 3, 2 / 3])

    @settings(max_examples=25)
    @given(seed=st.integers(0, 10**6), n=st.sampled_from([3, 7, 12]), merges=st.booleans(), equal=st.booleans())
    def test_maps_that_move_or_merge_atoms_pass_and_reweighting_does_not(
        self, seed: int, n: int, merges: bool, equal: bool
    ) -> None:
        # kills: sets that overlap, sets that do not exhaust, tolerance beyond the gap
        rng = np.random.default_rng(seed)
        weights = np.full(n, 1 / n) if equal else rng.permutation(binary_weights(n))
        mu = Atoms(rng.uniform(-1, 1, (n, 1)), weights)
        T = (lambda x: np.maximum(x, 0)) if merges else (lambda x: x**3)
        assert violation(BlackBox(push(T)), mu) is None
        share = float(rng.uniform(0.01, 0.3))

        def leak(mu: mf.Discrete) -> mf.Discrete:
            mass = np.asarray(mu.probabilities()).copy()
            mass[:2] += np.array([-1, 1]) * share * min(mass[0], mass[1])
            return mf.Discrete.weighted(mu.points, mass)

        assert violation(BlackBox(leak), mu) is not None

    @pytest.mark.parametrize("leak", [0.0, 1e-6])
    def test_many_atoms_are_checked_by_light_ones(self, leak: float) -> None:
        mu = large_measure(LINE, np.random.default_rng(0))
        assert mu.n == 200

        def f(mu: mf.Discrete) -> mf.Discrete:
            mass = np.asarray(mu.probabilities()).copy()
            mass[[0, -1]] += np.array([-1, 1]) * leak
            return mf.Discrete.weighted(np.maximum(np.asarray(mu.points), 0), mass)

        assert (violation(BlackBox(f), mu) is None) == (leak == 0)

    def test_subset_sums(self) -> None:
        sums = SubsetSums(binary_weights(5))
        assert sums.gap == pytest.approx(1 / 31)
        assert sums.behind(np.array([5 / 31, 31 / 31, 5.4 / 31]), 1e-9).tolist() == [0b00101, 0b11111, 0]
        # no other weights of mass 1 have a larger gap
        rng = np.random.default_rng(0)
        for _ in range(50):
            other = rng.uniform(0.1, 1, 5)
            assert SubsetSums(other / other.sum()).gap < sums.gap


NOISE = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("f", "error", "says"),
    [
        (lambda mu: 2 * mu, MassError, "image of mass 2"),
        (push(lambda x: x[:, [0] * (1 + int(x.shape[0] > 3))]), DimensionMismatchError, "R\\^"),
        (lambda mu: mf.Discrete(mu.points * np.nan, mu.log_weights), NotFiniteError, "NaN"),
        (push(lambda x: x + NOISE.normal(size=x.shape)), NotDeterministicError, "two images"),
        (lambda mu: np.asarray(mu.points), DtypeError, "ndarray"),
        (lambda mu: mf.SpaceTime.sequence(mu.points), DtypeError, "one more coordinate"),
        (3.0, DtypeError, "of type float"),
    ],
)
def test_black_boxes_that_are_refused(f: Any, error: type, says: str) -> None:
    with pytest.raises(error, match=says):
        mf.is_transformer(f, LINE, KEY, trials=2)


def test_other_refusals() -> None:
    with pytest.raises(DtypeError, match="compact domain"):
        mf.is_transformer(push(np.sin), (-1, 1), KEY)
    with pytest.raises(DtypeError, match="random key"):
        mf.is_support_preserving(push(np.sin), LINE, 0)
    with pytest.raises(OptionError, match="trials"):
        mf.is_transformer(push(np.sin), LINE, KEY, trials=0)


class TestDomains:
    @pytest.mark.parametrize(
        ("make", "says"),
        [
            (lambda: mf.Box([-np.inf], [1.0]), "not compact"),
            (lambda: mf.Box([1.0], [1.0]), "low < high"),
            (lambda: mf.Box([], []), "low < high"),
            (lambda: mf.Ball([0.0], np.inf), "compact"),
            (lambda: mf.Ball([0.0], -1.0), "positive"),
            (lambda: mf.Ball([np.nan], 1.0), "not compact"),
            (
                lambda: FixedTimes(LINE, [0.0, 1.0]).admit(np.zeros((1, 2)), np.ones(1)),
                "mass at all",
            ),
        ],
    )
    def test_refusals(self, make: Any, says: str) -> None:
        with pytest.raises(DomainError, match=says):
            make()

    @pytest.mark.parametrize(
        "domain",
        [mf.Box([-1.0, 0.0], [2.0, 5.0]), mf.Ball([1.0, 2.0], 3.0), FixedTimes(LINE, [0.25, 0.5])],
        ids=["box", "ball", "fixed times"],
    )
    def test_points_projections_and_chords_lie_inside(self, domain: Any) -> None:
        rng = np.random.default_rng(0)
        points = domain.draw(rng, 50)
        assert domain.contains(points).all()
        assert domain.contains(np.asarray(domain.sample(KEY, 20))).all()
        far = 10 * rng.normal(size=(50, 2))
        assert domain.contains(domain.project(far)).all()
        assert not domain.contains(far).all()
        # nearest: no drawn point is closer than the projection
        nearest = np.linalg.norm(far - domain.project(far), axis=1)
        assert (nearest[:, None] <= np.linalg.norm(far[:, None] - points, axis=2) + 1e-12).all()
        for through in points[:10]:
            ends = np.stack(domain.chord(rng, through))
            assert domain.contains(ends).all()
            if domain.least == 1:
                a, b = np.linalg.norm(ends - through, axis=1)
                assert a + b == pytest.approx(np.linalg.norm(ends[1] - ends[0]), abs=1e-9)
                # as long as can be: a little further is outside
                assert not domain.contains(ends + 1e-6 * (ends - ends[::-1])).any()
        assert np.linalg.norm(points[:, None] - points, axis=2).max() <= domain.diameter


def test_admitted_measures_have_equal_mass_at_each_time() -> None:
    domain = FixedTimes(LINE, [0.25, 0.5])
    rng = np.random.default_rng(1)
    points, weights = domain.admit(domain.draw(rng, 7), rng.uniform(size=7))
    for time in (0.25, 0.5):
        assert weights[points[:, 1] == time].sum() == pytest.approx(0.5)


def test_weights_that_tell_nothing_apart_accuse_nobody() -> None:
    # two of many equal atoms clipped to the same corner: no mass is a clue any more
    mu = large_measure(LINE, np.random.default_rng(0))
    clipped = Atoms(mu.points[1:], np.append(mu.weights[1:-1], mu.weights[-1]))
    clipped.weights[0] += mu.weights[0]
    assert violation(BlackBox(push(np.sin)), clipped) is None
