"""Classical and dense memories: energies against brute force, laws of the updates, fields, certificates, refusals."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import measureformer as mf
from compilations import count_compilations
from measureformer.errors import DimensionMismatchError, DtypeError, OptionError, PatternError, ShapeError

M = mf.memory
KEY = jax.random.key(0)
D = 12


def signs(seed: int, n: int, d: int = D) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2, (n, d)) * 2 - 1


def brute_energy(memory: Any, state: np.ndarray) -> int | float:
    """In Python's integers, term by term."""
    x = [int(v) for v in state]
    overlaps = [sum(int(a) * b for a, b in zip(row, x, strict=True)) for row in memory.patterns]
    if isinstance(memory, M.Classical):
        d, zero = memory.dim, memory.couplings[0, 0] == 0
        twice = -sum(o * o for o in overlaps) + (memory.n * sum(v * v for v in x) if zero else 0)
        assert d == len(x)
        return twice / 2
    if isinstance(memory.interaction, M.Polynomial):
        return -sum(o**memory.interaction.degree for o in overlaps)
    return -math.log(sum(math.exp(o) for o in overlaps))


MEMORIES = {
    "hebb": lambda X: M.Classical.store(X),
    "hebb with diagonal": lambda X: M.Classical.store(X, zero_diagonal=False),
    "cubic": lambda X: M.Dense.store(X, interaction=M.Polynomial(3)),
    "exponential": lambda X: M.Dense.store(X),
}


class TestEnergies:
    @pytest.mark.parametrize("name", MEMORIES)
    def test_against_brute_force_in_integers(self, name: str) -> None:
        memory = MEMORIES[name](signs(0, 5))
        states = np.concatenate([signs(1, 6), [[0] * D]])
        expected = [brute_energy(memory, state) for state in states]
        if name == "exponential":
            np.testing.assert_allclose(memory.energy(states), expected, rtol=1e-13)
        else:
            assert memory.energy(states).tolist() == expected

    def test_bias_and_its_sign(self) -> None:
        # kills: the sign of b in the energy or in the field
        memory = M.Classical.store([[1, 1, 1]], bias=[5, 0, 0])
        assert memory.energy([1, 1, 1]) == -3 + 5
        assert memory.update([1, 1, 1]).tolist() == [-1, 1, 1]
        # nothing is stored for the third bit, so the bias alone decides
        alone = M.Classical.store([[1, 1, 1]], bias=[0, 0, -4])
        assert alone.update([1, -1, -1]).tolist()[2] == 1

    @settings(max_examples=15)
    @given(seed=st.integers(0, 10**6), name=st.sampled_from(sorted(MEMORIES)))
    def test_asynchronous_updates_never_raise_them_and_end(self, seed: int, name: str) -> None:
        # kills: ties that turn the sign, synchronous updates, fields that are not brought up to date
        memory = MEMORIES[name](signs(seed, 5))
        found = memory.retrieve(signs(seed + 1, 8))
        rises = np.diff(found.trace.energies, axis=0).max()
        assert rises <= (1e-12 if name == "exponential" else 0)
        assert found.trace.converged.all()
        assert found.certificate.fixed.all()
        np.testing.assert_allclose(found.trace.energies[-1], memory.energy(found.state), rtol=1e-13)
        np.testing.assert_allclose(found.trace.energies[0], memory.energy(signs(seed + 1, 8)), rtol=1e-13)

    def test_ten_thousand_flips_in_exact_integers(self) -> None:
        # one bit at a time, by hand, with Python's integers as the judge
        memory = M.Classical.store(signs(3, 9, 40))
        rng, state = np.random.default_rng(0), signs(4, 1, 40)[0]
        W = [[int(w) for w in row] for row in memory.couplings]
        energy = int(2 * memory.energy(state))
        for bit in rng.integers(0, 40, 10_000):
            field = sum(w * int(s) for w, s in zip(W[bit], state, strict=True))
            new = state[bit] if field == 0 else int(np.sign(field))
            after = energy - 2 * (new - int(state[bit])) * field
            state[bit] = new
            assert after <= energy
            energy = after
        assert energy == 2 * memory.energy(state)


class TestUpdates:
    @pytest.mark.parametrize("name", MEMORIES)
    def test_one_sweep_is_bit_by_bit_descent(self, name: str) -> None:
        memory = MEMORIES[name](signs(5, 5))
        state = signs(6, 1)[0]
        expected = state.copy()
        for bit in range(D):
            low, high = expected.copy(), expected.copy()
            low[bit], high[bit] = -1, 1
            gap = brute_energy(memory, low) - brute_energy(memory, high)
            if name == "hebb with diagonal":
                # its field has the bit's own term, ½(E(−) − E(+)) + w_ll ξ_l
                gap += 2 * memory.n * expected[bit]
            if abs(gap) > 1e-9:
                expected[bit] = int(np.sign(gap))
        assert memory.update(state).tolist() == expected.tolist()

    def test_synchronous_fields_of_dense_memories_are_energy_differences(self) -> None:
        states = np.concatenate([signs(7, 4), signs(8, 1) * (np.arange(D) % 3 > 0)])
        for interaction in (M.Polynomial(2), M.Polynomial(3), M.Polynomial(4), M.Exponential()):
            memory = M.Dense.store(signs(9, 6), interaction=interaction)
            felt, error = memory.fields(states)
            for state, row in zip(states, felt, strict=True):
                differences = []
                for bit in range(D):
                    low, high = state.copy(), state.copy()
                    low[bit], high[bit] = -1, 1
                    if isinstance(interaction, M.Exponential):
                        z = [math.exp(-brute_energy(memory, s)) for s in (high, low, state)]
                        differences.append((z[0] - z[1]) / (2 * math.sinh(1) * z[2]))
                    else:
                        differences.append(brute_energy(memory, low) - brute_energy(memory, high))
                np.testing.assert_allclose(row, differences, rtol=1e-10, atol=1e-12)
            assert (error == 0).all() == isinstance(interaction, M.Polynomial)

    def test_quadratic_is_hebb_without_the_diagonal(self) -> None:
        X, queries = signs(10, 4), signs(11, 8)
        one, two = M.Dense.store(X, interaction=M.Polynomial(2)), M.Classical.store(X)
        np.testing.assert_array_equal(one.fields(queries)[0], 4 * two.fields(queries))
        np.testing.assert_array_equal(one.retrieve(queries).state, two.retrieve(queries).state)

    def test_two_bits_cycle_when_updated_at_once(self) -> None:
        memory = M.Classical.store([[1, 1]])
        found = memory.retrieve([1, -1], mode="synchronous")
        assert bool(found.trace.cycles)
        assert not found.trace.converged
        assert not found.certificate.fixed
        assert memory.retrieve([1, -1]).trace.converged
        # a query that cycles says so also while others are still on their way
        several = M.Classical.store(signs(0, 40)).retrieve(signs(1, 16), mode="synchronous").trace
        assert several.cycles.any()
        assert (several.cycles != several.converged).all()
        assert len(set(several.steps.tolist())) > 1

    def test_unknown_bits_are_filled_in_and_ties_keep_what_is_known(self) -> None:
        memory = M.Classical.store(signs(12, 1))
        half = signs(12, 1)[0] * (np.arange(D) < D // 2)
        assert memory.retrieve(half).state.tolist() == signs(12, 1)[0].tolist()
        # nothing speaks for either sign
        assert memory.retrieve(np.zeros(D)).state.tolist() == [0] * D
        assert not memory.retrieve(np.zeros(D)).certificate.fixed
        two = M.Classical.store([[1, 1, 1, 1], [-1, 1, 1, 1]])
        assert [two.retrieve([s, 1, 1, 1]).state[0] for s in (1, -1)] == [1, -1]

    def test_random_order_follows_the_key(self) -> None:
        memory = M.Classical.store(signs(13, 6))
        queries = signs(14, 16)
        one, same = (memory.retrieve(queries, key=KEY).state for _ in range(2))
        np.testing.assert_array_equal(one, same)
        assert (memory.retrieve(queries, key=jax.random.key(7)).state != one).any()

    def test_pseudo_inverse_holds_correlated_patterns(self) -> None:
        X = np.ones((6, D), int)
        X[np.arange(6), np.arange(6)] = -1
        assert not M.Classical.store(X).stable().all()
        assert M.Classical.store(X, rule="pseudo-inverse").stable().all()
        # repeated patterns are one direction
        assert M.Classical.store(np.concatenate([X, X]), rule="pseudo-inverse").stable().all()

    def test_one_query_and_many_agree_and_nothing_compiles_for_more(self) -> None:
        memory = M.Dense.store(signs(15, 7))
        queries = signs(16, 12)
        many = memory.retrieve(queries).state
        assert memory.retrieve(queries[3]).state.tolist() == many[3].tolist()
        more = M.Dense.store(signs(17, 11))
        assert count_compilations(lambda: more.retrieve(signs(18, 9), steps=90)) == 0


REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "not signs": (lambda: M.Classical.store([[1, 2]]), PatternError, "entry 2 in row 0, column 1"),
    "zero pattern": (lambda: M.Dense.store([[1, 0]]), PatternError, "entry 0"),
    "no patterns": (lambda: M.Classical.store(np.zeros((0, 3))), PatternError, "at least one pattern"),
    "mixed shapes": (lambda: M.Classical.store([[1, 1], [1]]), ShapeError, "ragged"),
    "not rows": (lambda: M.Dense.store([1, -1]), ShapeError, "n, d"),
    "state": (lambda: M.Classical.store([[1, 1]]).energy([1, 0.5]), PatternError, "0.5"),
    "dimension": (lambda: M.Dense.store([[1, 1]]).update([1, 1, 1]), DimensionMismatchError, "dimension 3"),
    "rule": (lambda: M.Classical.store([[1]], rule="storkey"), OptionError, "storkey"),
    "mode": (lambda: M.Classical.store([[1]]).retrieve([1], mode="both"), OptionError, "both"),
    "bias": (lambda: M.Classical.store([[1]], bias=[1, 2]), ShapeError, "one number per bit"),
    "degree": (lambda: M.Polynomial(1), OptionError, "at least 2"),
    "steep": (lambda: M.Dense.store([[1] * 100], interaction=M.Polynomial(400)), OptionError, "Exponential"),
    "interaction": (lambda: M.Dense.store([[1]], interaction=3), DtypeError, "Polynomial"),
    "too many bits": (lambda: M.Classical.store(np.ones((1, 9000))), OptionError, "8192"),
    "steps": (lambda: M.Classical.store([[1]]).retrieve([1], steps=0), OptionError, "steps"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    call, error, words = REFUSED[case]
    with pytest.raises(error, match=words.replace("(", r"\(")):
        call()
