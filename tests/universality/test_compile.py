"""The compiler: equality with direct evaluation, the certificate, sizes, files, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np
import pytest
from safetensors.numpy import load_file

import measureformer as mf
from compilations import count_compilations
from measureformer import errors
from measureformer.universality.algebra import Expression
from measureformer.universality.program import Interval

Block = mf.universality.Block
SQUARE = mf.Box([-1.0, -1.0], [1.0, 1.0])


def random_expression(seed: int, components: int = 2, dim: int = 2) -> Expression:
    """Three monomials of degrees 3, 2 and 1 or 2 in each component, with random blocks and coefficients."""
    rng = np.random.default_rng(seed)

    def block() -> mf.universality.Block:
        u, v, b = rng.normal(size=(3, dim)) / 2
        return Block(rng.normal(size=(dim, dim)), b, rng.normal() / 2, u, v)

    def monomial(degree: int) -> Any:
        product = float(rng.normal()) * block()
        for _ in range(degree - 1):
            product = product * block()
        return product

    parts = [
        monomial(3) + monomial(2) + monomial(int(rng.integers(1, 3))) + float(rng.normal()) for _ in range(components)
    ]
    return mf.universality.vector(*parts)


def cloud(seed: int, n: int, dim: int = 2) -> mf.Discrete:
    rng = np.random.default_rng(seed)
    return mf.Discrete.weighted(rng.uniform(-1, 1, (n, dim)), rng.uniform(0.01, 2, n))


def queries(seed: int, m: int = 400, dim: int = 2) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (m, dim))


def largest(difference: Any) -> float:
    return float(np.linalg.norm(np.asarray(difference), axis=-1).max())


@pytest.mark.parametrize("seed", range(3))
def test_a_quadratic_network_is_exact_for_any_number_of_tokens(seed: int) -> None:
    # kills: z not reset, p not reset between monomials, heads that write to each other's z, weights that are ignored
    e = random_expression(seed)
    net = mf.universality.compile(e, SQUARE, activation="quadratic")
    assert (net.census.token_dim, net.census.heads) == (2 + 3 * 2, 2)
    assert net.census.layers == max(sum(len(blocks) for _, blocks in e.terms(h)) for h in range(2))
    assert net.error_bound < 1e-6
    x = queries(seed, 20)
    for n in (5, 50) if seed == 0 else (5,):
        for mu in (cloud(n, n), mf.Discrete.uniform(cloud(n, n).points)):
            assert largest(net(mu, x) - e(mu, x)) < 1e-10


def test_the_transformer_is_an_ordinary_one_and_the_same() -> None:
    a, b, c = (Block(None, [0.3, k], 0.1, [k, 0.2], [0.5, -k]) for k in (0.2, -0.7, 1.1))
    net = mf.universality.compile(mf.universality.vector(a * b, c - 2), SQUARE, cells=4)
    assert isinstance(net.transformer, mf.Transformer)
    assert net.transformer.depth == net.census.layers + 2 == 4
    mu, x = cloud(1, 9), queries(2, 11)
    assert largest(net.transformer(mu, x) - net(mu, x)) < 1e-12
    assert largest(net.transformer.push(mu).points - net.push(mu).points) < 1e-12
    leaves = [leaf for leaf in _arrays(net.transformer) if leaf.ndim]
    assert net.census.parameters == sum(leaf.size for leaf in leaves)
    assert net.census.nonzero == sum(np.count_nonzero(leaf) for leaf in leaves)
    # coordinates of the context are never touched: every layer sees the original measure
    inner = mf.Transformer(*net.transformer.layers[:-1])
    np.testing.assert_array_equal(np.asarray(inner.push(mu).points)[:, :2], mu.points)


def _arrays(tree: Any) -> list[np.ndarray]:
    import jax

    return [np.asarray(leaf) for leaf in jax.tree.leaves(eqx.filter(tree, eqx.is_array))]


@pytest.mark.parametrize("domain", [SQUARE, mf.Ball([0.3, 0.0], 1.0)])
def test_relu_errors_stay_below_the_certificate_and_fall_with_the_square_of_the_width(domain: Any) -> None:
    # kills: C = B instead of 2B (errors do not converge), a factor missing in the bound, a knot missing
    e, cells = random_expression(11), (8, 16, 32)
    rng = np.random.default_rng(3)
    contexts = [mf.Discrete.weighted(domain.draw(rng, n), rng.uniform(0.01, 2, n)) for n in (1, 2, 5, 12)]
    x = domain.draw(rng, 500)
    found, bounds = [], []
    for count in cells:
        net = mf.universality.compile(e, domain, cells=count)
        found.append(max(largest(net(mu, x) - e(mu, x)) for mu in contexts))
        bounds.append(net.error_bound)
        assert found[-1] <= bounds[-1]
    slope = np.polyfit(np.log(cells), np.log(found), 1)[0]
    assert slope == pytest.approx(-2, abs=0.15)
    assert np.polyfit(np.log(cells), np.log(bounds), 1)[0] == pytest.approx(-2, abs=0.1)
    # a bound a hundred times too large would also never be exceeded
    assert found[-1] > bounds[-1] / 100


def test_the_product_of_two_coordinates_attains_its_bound() -> None:
    # xy on [−1, 1]²: the error is largest where one square is met in the middle of a cell and the other at a knot
    e = Block(None, None, 0.0, [1.0, 0.0], None) * Block(None, None, 0.0, [0.0, 1.0], None)
    net = mf.universality.compile(e, SQUARE, cells=4)
    grid = np.linspace(-1, 1, 81)
    x = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    error = largest(net(mf.Discrete.dirac([0.0, 0.0]), x) - x[:, :1] * x[:, 1:])
    assert net.error_bound == pytest.approx(1 / 16, rel=1e-6)
    assert 0.95 / 16 < error <= net.error_bound


def test_as_few_cells_as_the_tolerance_needs() -> None:
    e = random_expression(12)
    net = mf.universality.compile(e, SQUARE, tol=0.01)
    assert net.cells is not None
    assert net.error_bound <= 0.01 < mf.universality.compile(e, SQUARE, cells=net.cells - 1).error_bound


def test_a_missing_knot_breaks_the_certificate() -> None:
    e = random_expression(11, components=1)
    net = mf.universality.compile(e, SQUARE, cells=64)
    rows = np.abs(np.asarray(net.layers.W2)).sum(axis=1)
    layer = int((rows > 0).sum(axis=1).argmax())
    used = np.flatnonzero(rows[layer] > 0)
    broken = eqx.tree_at(lambda n: n.layers.W2, net, net.layers.W2.at[layer, :, used[len(used) // 8]].set(0.0))
    mu, x = cloud(2, 9), queries(5)
    assert largest(net(mu, x) - e(mu, x)) <= net.error_bound < largest(broken(mu, x) - e(mu, x))


def test_masked_values_are_those_of_the_truncated_measure() -> None:
    e = random_expression(13)
    net = mf.universality.compile(e, SQUARE, activation="quadratic")
    rng = np.random.default_rng(4)
    sigma = mf.SpaceTime.weighted(rng.uniform(-1, 1, (12, 2)), rng.uniform(0, 1, 12), rng.uniform(0.1, 1, 12))
    x = queries(6, 5)
    for t in (float(np.sort(sigma.times)[3]), 0.7, 1.0):
        truncated = e(sigma.until(t), x)
        assert largest(mf.Causal(net)(sigma, x, t) - truncated) < 1e-12
        assert largest(mf.Causal(e)(sigma, x, t) - truncated) < 1e-12
        assert largest(mf.Causal(net.transformer)(sigma, x, t) - truncated) < 1e-12
    assert largest(e(sigma.space(), x) - e(sigma.until(0.5), x)) > 1e-3  # the mask is felt


def test_a_new_number_of_tokens_compiles_nothing() -> None:
    net = mf.universality.compile(random_expression(14), SQUARE, activation="quadratic")
    net(cloud(1, 33), queries(1, 7))
    mu, x = cloud(2, 40), queries(2, 5)
    assert count_compilations(lambda: net(mu, x)) == 0


def test_saved_networks_come_back_and_run_elsewhere(tmp_path: Path) -> None:
    for activation, domain in (("relu", SQUARE), ("quadratic", mf.Ball([0.0, 0.0], 1.5))):
        net = mf.universality.compile(random_expression(15), domain, activation=activation, tol=0.1)
        net.save(tmp_path / "net.safetensors")
        again = mf.universality.load_compiled(tmp_path / "net.safetensors")
        mu, x = cloud(3, 8), queries(7, 6)
        np.testing.assert_array_equal(again(mu, x), net(mu, x))
        assert again.error_bound == net.error_bound
        assert (again.census, again.explain()) == (net.census, net.explain())
        state = load_file(tmp_path / "net.safetensors")
        assert largest(_elsewhere(state, activation, mu, x) - np.asarray(net(mu, x))) < 1e-12


def _elsewhere(state: dict[str, np.ndarray], activation: str, mu: mf.Discrete, x: np.ndarray) -> np.ndarray:
    """The documented torch module, in NumPy: nothing of the library is used but the file."""

    def linear(name: str, tokens: np.ndarray) -> np.ndarray:
        return tokens @ state[f"{name}.weight"].T + state.get(f"{name}.bias", 0.0)

    n = mu.n
    tokens = linear("embed", np.concatenate([mu.points, x]))
    heads = state["readout.weight"].shape[0]
    layers = {name.split(".")[1] for name in state if name.startswith("layers.")}
    for layer in range(len(layers)):
        q, k, v = (linear(f"layers.{layer}.{key}", tokens).reshape(len(tokens), heads, -1) for key in "qkv")
        logits = np.einsum("mhk,nhk->hmn", q, k[:n]) + np.log(mu.weights)
        weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        read = np.einsum("hmn,nhe->mhe", weights, v[:n]).reshape(len(tokens), -1)
        tokens = tokens + linear(f"layers.{layer}.o", read)
        hidden = linear(f"layers.{layer}.up", tokens)
        tokens = tokens + linear(
            f"layers.{layer}.down", hidden**2 if activation == "quadratic" else np.maximum(hidden, 0)
        )
    return linear("readout", tokens)[n:]


def test_the_documented_torch_module_reads_the_file(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file as load_tensors

    page = (Path(__file__).parents[2] / "docs" / "universality.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    exec(page.split("```text")[1].split("```")[0], names)
    mu = cloud(4, 7)
    net = mf.universality.compile(random_expression(15), SQUARE, tol=0.1)
    net.save(tmp_path / "net.safetensors")
    module = names["Net"](2, 2, net.census.widths, square=False).double()
    module.load_state_dict(load_tensors(tmp_path / "net.safetensors"))
    with torch.no_grad():
        there = module(torch.tensor(np.array(mu.points)), torch.tensor(np.array(mu.log_weights))).numpy()
    assert largest(there - np.asarray(net.push(mu).points)) < 1e-12


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    from measureformer.storage.safetensors import read_sealed, sealed

    path = tmp_path / "net.safetensors"
    mf.universality.compile(random_expression(15), SQUARE, cells=2).save(path)
    tensors, about = read_sealed(path)
    harms: list[tuple[dict[str, Any], dict[str, str]]] = [
        ({"layers.1.up.bias": np.zeros(3)}, {}),
        ({"layers.0.down.weight": np.zeros((8, 1))}, {}),
        ({"readout.weight": np.zeros((3, 8))}, {}),
        ({}, {"bounds": "[0.0]"}),
        ({}, {"cells": "-1"}),
        ({}, {"domain": '{"low": [1.0, 1.0], "high": [0.0, 0.0]}'}),
        ({}, {"story": "no list"}),
    ]
    for entries, words in harms:
        # sealed again, as if it had been written so: otherwise the seal would refuse everything
        path.write_bytes(sealed(tensors | entries, about | words))
        with pytest.raises(errors.SavedRunError, match="is not whole"):
            mf.universality.load_compiled(path)
    path.write_bytes(sealed(tensors, {"format": "0"}))
    with pytest.raises(errors.SavedRunError, match="was compiled here"):
        mf.universality.load_compiled(path)
    # kills: a bound that somebody has made smaller
    path.write_bytes(sealed(tensors, about).replace(about["bounds"][:6].encode(), b"[0.000"))
    with pytest.raises(errors.SavedRunError, match="not those that were written"):
        mf.universality.load_compiled(path)
    path.write_bytes(b"not a network")
    with pytest.raises(errors.SavedRunError, match="cannot be read"):
        mf.universality.load_compiled(path)


def test_nothing_is_certified_outside_of_the_domain_inside_of_other_programs() -> None:
    import jax

    net = mf.universality.compile(random_expression(17), SQUARE, tol=0.1)
    mu = mf.Discrete.uniform([[0.0, 0.5], [0.9, -0.3]])
    inside, outside = (net @ mf.Linear(scale * np.eye(2)) for scale in (0.5, 2.0))
    assert np.isfinite(inside(mu, [0.1, 0.1])).all()
    with pytest.raises(errors.DomainError, match=r"an atom at \[ 1.8 -0.6\]"):
        outside(mu, [0.1, 0.1])
    values = np.asarray(jax.jit(lambda x: net(mu, x))(np.array([[0.5, 0.5], [0.5, 1.5]])))
    assert np.isfinite(values).all(axis=1).tolist() == [True, False]


def test_the_explanation_names_every_factor() -> None:
    e = random_expression(16)
    net = mf.universality.compile(e, SQUARE, cells=3)
    text = net.explain()
    reads = sum(len(blocks) for h in range(2) for _, blocks in e.terms(h))
    assert text.count("reads γ") == reads
    assert f"error ≤ {net.error_bound:.3g}" in text


def test_constants_alone_need_no_layer() -> None:
    e = Block(None, None, 0.0, None, [1.0]) * 0 + 2.5
    for activation in ("relu", "quadratic"):
        net = mf.universality.compile(e, mf.Box([0.0], [1.0]), activation=activation)
        assert float(net(mf.Discrete.dirac([0.3]), [0.2])[0]) == 2.5


def test_ranges_of_products() -> None:
    assert Interval(-1.0, 2.0).times(Interval(-3.0, 1.0)) == Interval(-6.0, 3.0)


def test_what_is_refused() -> None:
    e = random_expression(17)
    net = mf.universality.compile(e, SQUARE, tol=0.1)
    inside, outside = mf.Discrete.dirac([0.0, 0.0]), mf.Discrete.dirac([0.0, 1.5])
    with pytest.raises(errors.DomainError, match="an atom at"):
        net(outside, [0.0, 0.0])
    with pytest.raises(errors.DomainError, match="a query at"):
        net(inside, [0.0, 1.5])
    with pytest.raises(errors.DomainError, match="an atom at"):
        net.push(outside)
    passive = mf.Discrete.weighted([[0.0, 0.0], [0.0, 1.5]], [1.0, 0.0])
    assert np.isfinite(net(passive, [0.0, 0.0])).all()  # nobody feels a token without mass
    with pytest.raises(errors.NoClosedFormError, match="Gaussian"):
        net(mf.Gaussian([0.0, 0.0], np.eye(2)), [0.0, 0.0])
    for tol in (1e-12, 5e-324):
        with pytest.raises(errors.ToleranceError, match=r"a layer needs \d+ hidden units, and all 7 of them"):
            mf.universality.compile(e, SQUARE, tol=tol)
    with pytest.raises(errors.DimensionMismatchError, match=r"R.2 and a domain in R.1"):
        mf.universality.compile(e, mf.Box([0.0], [1.0]))
    with pytest.raises(errors.OptionError, match="activation = 'gelu'"):
        mf.universality.compile(e, SQUARE, activation="gelu")
    with pytest.raises(errors.DtypeError, match="polynomial in blocks"):
        mf.universality.compile(mf.Identity(), SQUARE)
    with pytest.raises(errors.OptionError, match="tol = -1"):
        mf.universality.compile(e, SQUARE, tol=-1)
