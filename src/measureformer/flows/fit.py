"""`fit_flow`: training an infinitely deep transformer, min_θ Σ_k |T_θ[mu^k](x^k) − y^k|² with θ(t) in pieces."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from measureformer.errors import (
    DimensionMismatchError,
    DtypeError,
    SavedRunError,
    ShapeError,
    TrainingError,
)
from measureformer.files import write_atomically
from measureformer.flows import _training
from measureformer.flows._map import Depthwise, FlowMap
from measureformer.flows._training import (
    GRADIENT_VANISHED,
    LOSS_REACHED,
    NOT_FINITE,
    RUNNING,
    Problem,
    Stack,
    State,
    Training,
)
from measureformer.maps.attention import Attention
from measureformer.measures import Discrete
from measureformer.measures.atomic import concrete
from measureformer.numerics import arrays
from measureformer.numerics.buckets import bucket, pad_log_weights, pad_rows
from measureformer.progress import bar

FORMAT = 1
"""Version of the files in a folder."""

LONGEST = 1024
"""Most steps between two looks at the clock."""


class FlowFit(eqx.Module):
    """A trained flow: `velocity` for `mf.flow`, and `map`, the in-context map that was trained.

    >>> import jax, measureformer as mf
    >>> mu = mf.Discrete.uniform([[0.0, 1.0], [1.0, 0.0]])
    >>> fit = mf.flows.fit_flow([mu], [[0.0, 0.0]], [[0.3, 0.2]], heads=1, pieces=1, key=jax.random.key(0))
    >>> len(fit.velocity), fit.map(mu, [0.0, 0.0]).round(3).tolist()
    (1, [0.3, 0.2])
    """

    velocity: tuple[Attention, ...]
    """One layer for each piece of the depth."""
    map: FlowMap
    """T: (mu, x) ↦ the place of x at the end, solved as during training."""
    losses: Float[np.ndarray, " s"]
    """The loss before each step, and after the last."""
    stopped: str = eqx.field(static=True)
    """Why training ended: the "loss" is at most tol, the "gradient" vanished, or no "steps" were left."""

    @property
    def loss(self) -> float:
        """Mean of |T[mu](x) − y|² over all queries at the end."""
        return float(self.losses[-1])

    @property
    def converged(self) -> bool:
        """Whether training ended by itself: with more steps it would not have gone on."""
        return self.stopped != "steps"


def fit_flow(
    contexts: Any,
    points: Any,
    targets: Any,
    *,
    heads: int,
    pieces: int,
    key: Any,
    training: Training | None = None,
    save: Any = None,
) -> FlowFit:
    """Softmax heads θ(t), constant on pieces of the depth, whose flow takes points to targets in their contexts.

    `contexts` is a list of measures; `points[k]` and `targets[k]` are one query (d,) or several (m, d) in the k-th of
    them. What is minimised is the mean of |T_θ[mu](x) − y|² over all queries. At first W = 0, T is the identity, and so
    the first loss is the mean of |x − y|². Heads are square matrices, drawn with `key`.

    With `save`, a folder, the state is written there about every second, and the same call goes on from it: an
    interrupted training ends with the same bits as one that was not. "descent" also goes on when asked for more steps;
    the rate of "adam" depends on their number. Data lie in memory whole, and each update sees all of them.

    Statement   min_θ Σ_k |T_θ[mu^k](x^k) − y^k|²,  T_θ[mu](x) = x(1),  ẋ = v_θ(t)[mu_t](x),  mu_t moved by the same v
    Cost        for each update, a few flows of all contexts, forth and back; memory for a state per piece.
    Ref         barboni2026; furuya2025, equations (13) and (14).

    >>> import jax, measureformer as mf
    >>> mu, nu = mf.Discrete.dirac([1.0, 0.0]), mf.Discrete.uniform([[0.0, 1.0], [0.0, 2.0], [1.0, 1.0]])
    >>> data = [mu, nu], [[0.0, 0.0], [0.0, 0.0]], [[0.5, 0.0], [0.0, -0.5]]      # one point, two contexts, two targets
    >>> fit = mf.flows.fit_flow(*data, heads=2, pieces=2, key=jax.random.key(0))
    >>> fit.converged, float(fit.losses[0]), fit.loss < 1e-8
    (True, 0.25, True)
    """
    training = Training() if training is None else training
    problem = _problem(contexts, points, targets)
    dtype, dim = problem.x.dtype, problem.x.shape[-1]
    heads, pieces = arrays.positive_int(heads, "heads"), arrays.positive_int(pieces, "pieces")
    start = arrays.cast(_training.resting(key, dim, heads, pieces), dtype)
    folder = None if save is None else Folder.at(Path(save), problem, start, training, _about(problem, start))
    state = started(start, training)
    losses = np.zeros(0, dtype)
    if folder is not None:
        state, losses = folder.read(state)
    with bar("training", training.steps) as show:
        state, losses = trained(state, losses, problem, training, show, folder)
    code = int(state.code)
    layers = _layers(state.good)
    if code == NOT_FINITE:
        shown = f"from {losses[0]:.3g} to {losses[-2]:.3g}" if len(losses) > 1 else "none"
        raise TrainingError(
            got=f"a loss that is not finite after {int(state.done)} steps (finite losses before: {shown})",
            need="finite losses",
            do="Scale the data down, or take a smaller rate; `error.last` holds the last layers with a finite loss.",
            last=layers,
        )
    flow_map = FlowMap(Depthwise(layers), training.plan(pieces), training.settings(dtype))
    stopped = {LOSS_REACHED: "loss", GRADIENT_VANISHED: "gradient", RUNNING: "steps"}[code]
    return FlowFit(layers, flow_map, losses, stopped)


def trained(
    state: State,
    losses: np.ndarray,
    problem: Problem,
    training: Training,
    show: Callable[[float, str], None],
    folder: Folder | None,
    objective: Callable[..., Any] = _training.loss,
) -> tuple[State, np.ndarray]:
    """Chunk after chunk of steps, each about a second long; what is saved is whole whenever the user interrupts."""
    length = 8
    # a state that was saved at its last step has one more loss than updates
    losses = losses[: int(state.done)]
    while int(state.code) == RUNNING:
        left = training.steps - int(state.done)
        count, begun = min(length, max(left, 1)), time.perf_counter()
        state, values = _chunk(state, problem, training, np.asarray(count), np.asarray(left > 0), objective)
        # the last loss of all was followed by no update
        known = int(state.done) + (left <= 0 or int(state.code) != RUNNING)
        losses = np.concatenate([losses, np.asarray(values)[: known - len(losses)]])
        show(int(state.done), f"loss {float(losses[-1]):.3g}")
        if folder is not None:
            folder.write(state, losses)
        if left <= 0:
            break
        spent = time.perf_counter() - begun
        length = min(2 * length, LONGEST) if spent < 0.5 else max(length // 2, 1) if spent > 2 else length
    return state, losses


started = eqx.filter_jit(_training.started)


@eqx.filter_jit
def _chunk(
    state: State, problem: Problem, training: Training, count: Any, more: Any, objective: Callable[..., Any]
) -> tuple[State, Array]:
    """At most `count` updates, and the losses before them. Any count is the same program, so the bits do not depend
    on where a training was cut into chunks."""

    def running(carry: tuple[Any, State, Array]) -> Array:
        return (carry[0] < count) & (carry[1].code == RUNNING)

    def one(carry: tuple[Any, State, Array]) -> tuple[Any, State, Array]:
        i, state, values = carry
        state, value = _training.updated(state, problem, training, more, objective)
        return i + 1, state, values.at[i].set(value)

    start = jnp.zeros((), int), state, jnp.zeros(LONGEST, problem.x.dtype)
    return jax.lax.while_loop(running, one, start)[1:]


def _layers(stack: Stack) -> tuple[Attention, ...]:
    entries = [np.asarray(leaf) for leaf in stack]
    return tuple(
        arrays.cast(Attention(*(leaf[i] for leaf in entries)), entries[0].dtype) for i in range(len(entries[0]))
    )


def _problem(contexts: Any, points: Any, targets: Any) -> Problem:
    """Data in arrays of one size, or a refusal."""
    for name, given in (("contexts", contexts), ("points", points), ("targets", targets)):
        if isinstance(given, Discrete) or not hasattr(given, "__len__"):
            raise DtypeError(
                got=f"{name} of type {type(given).__name__}",
                need="a sequence with an entry for each context",
                do="For one context pass lists of length 1: [mu], [x], [y].",
            )
    counts = len(contexts), len(points), len(targets)
    if 0 in counts or len(set(counts)) > 1:
        raise ShapeError(
            got=f"{counts[0]} contexts, {counts[1]} points and {counts[2]} targets",
            need="the same number of each, and at least one",
            do="points[k] and targets[k] are one query (d,), or several (m, d), in contexts[k].",
        )
    for k, mu in enumerate(contexts):
        if not isinstance(mu, Discrete):
            raise DtypeError(
                got=f"contexts[{k}] of type {type(mu).__name__}",
                need="a Discrete measure",
                do="Wrap tokens: mf.Discrete.uniform(tokens); of a continuous measure take mu.sample(key, n).",
            )
    concrete((list(contexts), list(points), list(targets)), "fit_flow")
    queries = [_queries(points[k], f"points[{k}]") for k in range(counts[0])]
    answers = [_queries(targets[k], f"targets[{k}]") for k in range(counts[0])]
    for k, (mu, x, y) in enumerate(zip(contexts, queries, answers, strict=True)):
        arrays.finite(mu.points, f"contexts[{k}]")
        if {x.shape[1], y.shape[1], mu.dim} != {contexts[0].dim}:
            raise DimensionMismatchError(
                got=f"a context in R^{mu.dim} with points in R^{x.shape[1]} and targets in R^{y.shape[1]} at k = {k}"
                + (f", after contexts in R^{contexts[0].dim}" if mu.dim != contexts[0].dim else ""),
                need="one dimension: a flow stays in its space",
                do="Append coordinates, zeros say, to what has fewer.",
            )
        if len(x) != len(y):
            raise ShapeError(
                got=f"{len(x)} points and {len(y)} targets at k = {k}",
                need="a target for each point",
                do="Give points[k] and targets[k] the same shape.",
            )
    return _stacked(contexts, queries, answers)


def _queries(given: Any, name: str) -> np.ndarray:
    rows = arrays.floats(given, name)
    if rows.ndim not in (1, 2) or 0 in rows.shape:
        raise ShapeError(
            got=f"{name} of shape {rows.shape}", need="(d,) or (m, d), not empty", do="One query is one row."
        )
    arrays.finite(rows, name)
    return np.atleast_2d(np.asarray(rows))


def _stacked(contexts: Sequence[Discrete], queries: list[np.ndarray], answers: list[np.ndarray]) -> Problem:
    n, m = _size(max(mu.n for mu in contexts)), _size(max(map(len, queries)))
    shares = [np.pad(np.ones(len(x)), (0, m - len(x))) for x in queries]
    total = sum(map(len, queries))
    problem = Problem(
        points=np.stack([pad_rows(mu.points, n) for mu in contexts]),
        log_weights=np.stack([pad_log_weights(mu.log_weights, n) for mu in contexts]),
        x=np.stack([pad_rows(x, m) for x in queries]),
        y=np.stack([pad_rows(y, m) for y in answers]),
        shares=np.stack(shares) / total,
    )
    dtype = arrays.common_dtype([(mu.points, x, y) for mu, x, y in zip(contexts, queries, answers, strict=True)])
    return arrays.cast(problem, dtype)


def _size(n: int) -> int:
    """Buckets, with the powers of 2 below: the same program runs thousands of times."""
    return min(bucket(n), 1 << (n - 1).bit_length())


def _about(problem: Problem, start: Stack) -> dict[str, int]:
    pieces, heads = start.Q.shape[:2]
    return {"contexts": problem.x.shape[0], "dim": problem.x.shape[2], "pieces": pieces, "heads": heads}


class Folder(NamedTuple):
    """Where training is saved: what is trained in `problem.json`, the last state in `state.safetensors`.

    The state is one file, and names the problem again: it is whole, or the one before it is still there.
    """

    path: Path
    name: str
    """Fingerprint of the problem."""

    @staticmethod
    def at(path: Path, problem: Problem, start: Any, training: Training, sizes: dict[str, Any]) -> Folder:
        """The folder, new or of the same problem; refused if it holds another one. `sizes` tell what is trained."""
        digest = hashlib.sha256()
        for leaf in (*problem, *map(np.asarray, jax.tree.leaves(start))):
            digest.update(f"{leaf.dtype}{leaf.shape}".encode() + np.ascontiguousarray(leaf).tobytes())
        settings = asdict(training)
        if training.method == "descent":
            del settings["steps"]  # more of them go on from where the others ended
        about = {
            "format": FORMAT,
            **sizes,
            "training": settings,
            "data": digest.hexdigest(),
        }
        text = json.dumps(about, indent=1)
        file = path / "problem.json"
        if not file.exists():
            write_atomically(file, text.encode())
        elif (found := _read_json(file)) != about:
            differing = sorted(name for name in {*about, *found} if about.get(name) != found.get(name))
            raise SavedRunError(
                got=f"{path}, which holds another training (other {', '.join(differing)})",
                need="a new folder, or one of the same data, key and settings",
                do="Choose another folder, or delete this one.",
            )
        return Folder(path, hashlib.sha256(text.encode()).hexdigest())

    def write(self, state: State, losses: np.ndarray) -> None:
        import safetensors.numpy

        entries = {**_named(state), "losses": losses}
        data = safetensors.numpy.save(entries, {"problem": self.name})
        write_atomically(self.path / "state.safetensors", data)

    def read(self, state: State) -> tuple[State, np.ndarray]:
        """The saved state and losses; those of a new training if there are none."""
        file = self.path / "state.safetensors"
        if not file.exists():
            return state, np.zeros(0, arrays.common_dtype(state.stack))
        import safetensors

        try:
            with safetensors.safe_open(file, "numpy") as opened:
                metadata = opened.metadata() or {}
                found = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 not a dictionary
        except (OSError, safetensors.SafetensorError) as error:
            raise _damaged(file, f"cannot be read ({error})") from error
        wanted = _named(state)
        alike = all(
            name in found and (found[name].shape, found[name].dtype) == (leaf.shape, leaf.dtype)
            for name, leaf in wanted.items()
        )
        if metadata.get("problem") != self.name or not alike or "losses" not in found:
            raise _damaged(file, "is not a state of the training in problem.json")
        leaves = [arrays.on_device(found[name]) for name in wanted]
        losses = found["losses"]
        state = cast(State, jax.tree.unflatten(jax.tree.structure(state), leaves))
        # whether training has ended is found again by the next look at the loss
        return state._replace(code=jnp.zeros_like(state.code)), losses


def _named(state: State) -> dict[str, np.ndarray]:
    """The leaves of the state by their place in it, in the order of the tree."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    return {jax.tree_util.keystr(path): np.asarray(leaf, order="C") for path, leaf in leaves}


def _read_json(file: Path) -> dict[str, Any]:
    try:
        body = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _damaged(file, f"cannot be read ({error})") from error
    if not isinstance(body, dict):
        raise _damaged(file, "is not what training writes")
    return cast(dict[str, Any], body)


def _damaged(file: Path, what: str) -> SavedRunError:
    return SavedRunError(
        got=f"{file}, which {what}", need="the files of an earlier training", do="Delete the folder, or choose another."
    )
