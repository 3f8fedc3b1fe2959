"""Phase diagrams: against `mf.flow` token by token, the law of the starts, resuming, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import numpy as np
import pytest

import measureformer as mf
from measureformer.clustering import phase
from measureformer.errors import DtypeError, OptionError, SavedRunError

KEY = jax.random.key(3)
FEW = mf.clustering.Ensemble(n=6, dim=3, batches=5)
BETAS, TIMES = [0.5, 5.0], [0.0, 1.0, 3.0, 8.0]


def velocity(beta: float, dim: int) -> mf.Tangent:
    return mf.Tangent(mf.Attention.head(*[np.eye(dim)] * 3, scale=beta))


def starts(ensemble: mf.clustering.Ensemble) -> np.ndarray:
    keys = jax.vmap(lambda i: jax.random.fold_in(KEY, i))(np.arange(ensemble.batches))
    return np.asarray(jax.vmap(lambda k: phase._start(k, ensemble.n, ensemble.dim))(keys), np.float64)


def test_the_same_as_following_each_system_alone() -> None:
    # kills: β and the starts exchanged in the flattened axis, pairs counted with the diagonal, ≥ n − 1 for "single"
    ensemble = mf.clustering.Ensemble(n=6, dim=3, batches=5, delta=0.05)
    found = mf.clustering.phase_diagram(KEY, BETAS, TIMES, ensemble=ensemble)
    X = starts(ensemble)
    X /= np.linalg.norm(X, axis=2, keepdims=True)
    for row, beta in enumerate(BETAS):
        v = velocity(beta, X.shape[2])
        paths = np.stack([np.asarray(mf.flow(v, mf.Discrete.uniform(x), TIMES).points) for x in X])
        cosines = paths @ paths.swapaxes(2, 3)
        assert np.abs(cosines - 0.95).min() > 1e-4  # no pair on the edge, so counts are exact
        near = cosines > 0.95
        share = (near.sum(axis=(2, 3)) - 6) / 30
        np.testing.assert_allclose(found.together[row], share.mean(axis=0), atol=1e-6)
        np.testing.assert_allclose(found.together_error[row], share.std(axis=0, ddof=1) / 5**0.5, atol=1e-6)
        np.testing.assert_allclose(found.groups[row], (1 / near.sum(axis=3)).sum(axis=2).mean(axis=0), atol=1e-5)
        np.testing.assert_allclose(found.single[row], near.all(axis=(2, 3)).mean(axis=0), atol=1e-6)
    assert found.together[0, 0] < found.together[0, -1]
    assert abs(found.together[0, 2] - found.together[1, 2]) > 0.05


def test_the_step_is_small_enough() -> None:
    fine = mf.clustering.Ensemble(n=16, dim=2, batches=24, step=0.02)
    usual = mf.clustering.Ensemble(n=16, dim=2, batches=24)
    few = [mf.clustering.phase_diagram(KEY, [1.0, 9.0], [0, 4, 12.0], ensemble=e).together for e in (usual, fine)]
    np.testing.assert_allclose(few[0], few[1], atol=3e-3)


def test_starts_are_uniform_also_in_fewer_coordinates() -> None:
    # ⟨x, y⟩ has mean 0 and variance 1/d; five standard errors; dim > n goes through a triangular factor
    for dim in (2, 40):
        X = starts(mf.clustering.Ensemble(n=8, dim=dim, batches=1500))
        assert X.shape == (1500, 8, min(dim, 8))
        np.testing.assert_allclose(np.linalg.norm(X, axis=2), 1, atol=1e-5)
        products = (X @ X.swapaxes(1, 2))[:, *np.triu_indices(8, 1)]
        assert abs(products.mean()) < 5 * (dim * products.size) ** -0.5
        assert products.var() == pytest.approx(1 / dim, rel=5 * (2 / products.size) ** 0.5)


def test_a_high_dimension_follows_the_curve() -> None:
    ensemble = mf.clustering.Ensemble(n=8, dim=4096, batches=12)
    found = mf.clustering.phase_diagram(KEY, [0.0, 3.0], np.linspace(0, 8, 41), ensemble=ensemble)
    curve = [mf.clustering.geshkovski23_phase_curve(8, beta, 1e-3) for beta in (0.0, 3.0)]
    np.testing.assert_allclose(found.boundary(), curve, rtol=0.05)
    assert curve[0] == pytest.approx(0.5 * np.log((1 + 7 * 0.999) / 0.001), rel=1e-10)
    cosine = mf.clustering.equiangular(8, 3.0, [0.0, curve[1]]).cosines[1]
    assert float(cosine) == pytest.approx(0.999, abs=1e-9)
    assert found.boundary(1.1).tolist() == [np.inf, np.inf]


def test_parts_are_kept_and_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phase, "SYSTEMS", 4)  # two starts in a part, three parts, the last one half empty
    run = lambda: mf.clustering.phase_diagram(KEY, BETAS, TIMES, ensemble=FEW, save=tmp_path)  # noqa: E731
    first = run()
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["part-00000.safetensors", "part-00001.safetensors", "part-00002.safetensors", "problem.json"]
    (tmp_path / files[1]).write_bytes(b"broken")
    (tmp_path / files[2]).unlink()
    asked: list[int] = []
    part = phase._Sweep.part
    monkeypatch.setattr(phase._Sweep, "part", lambda self, i: (asked.append(i), part(self, i))[1])
    again = run()
    assert sorted(asked) == [1, 2]
    np.testing.assert_array_equal(again.together, first.together)
    # how a sweep is cut into parts does not change it
    monkeypatch.setattr(phase, "SYSTEMS", 1000)
    whole = mf.clustering.phase_diagram(KEY, BETAS, TIMES, ensemble=FEW)
    np.testing.assert_allclose(whole.together, first.together, atol=1e-7)
    np.testing.assert_allclose(whole.groups, first.groups, atol=1e-5)


def test_a_folder_belongs_to_one_sweep(tmp_path: Path) -> None:
    (tmp_path / "problem.json").write_text(json.dumps({"n": 3}))
    with pytest.raises(SavedRunError, match=r"another run .*n 3 there"):
        mf.clustering.phase_diagram(KEY, BETAS, TIMES, ensemble=FEW, save=tmp_path)


def test_refusals() -> None:
    with pytest.raises(OptionError, match="all ≥ 0"):
        mf.clustering.phase_diagram(KEY, [-1.0], TIMES)
    with pytest.raises(OptionError, match="n ≥ 2"):
        mf.clustering.Ensemble(n=1)
    with pytest.raises(OptionError, match="step"):
        mf.clustering.Ensemble(step=0.0)
    with pytest.raises(DtypeError, match="random key"):
        mf.clustering.phase_diagram(0, BETAS, TIMES)
    with pytest.raises(OptionError, match="0 < delta"):
        mf.clustering.geshkovski23_phase_curve(5, 1.0, 0.0)
