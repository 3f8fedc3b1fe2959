"""Training over several devices is the training of one: the same prompts, the same steps, up to rounding."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import measureformer as mf
from launching import PATIENCE, environment
from measureformer.incontext import InContextModel, LanguageModel, tasks
from measureformer.incontext.language import CorpusLoss, DocumentLoss
from measureformer.incontext.train import InContextLoss
from measureformer.training.devices import Divisible, equal_parts, shared_over
from measureformer.training.optimization import Optimization

KEY = jax.random.key(3)
SMALL = mf.Architecture(width=8, layers=1, heads=2)

PROGRAM = """
import json, sys, jax, numpy as np, measureformer as mf
from measureformer.incontext import InContextModel, tasks
from measureformer.training.optimization import Optimization
from measureformer.incontext.train import InContextLoss
from measureformer.training import loop

task, key = tasks.linear(2), jax.random.key(0)
model = InContextModel.random(key, 2, mf.Architecture(8, 1, 2), points=4)
# Adam would make steps of rounding errors, where a slope vanishes: biases of keys
settings = Optimization(steps=20, batch=8, rate=0.1, method="momentum")
meshes, chunk, calls = [], loop._chunk, []
copies = []

def seen(state, program, count, more):
    calls.append(1)
    if len(calls) == stop:
        raise KeyboardInterrupt
    meshes.append(0 if program.mesh is None else program.mesh.size)
    state, values = chunk(state, program, count, more)
    leaves = [leaf for leaf in jax.tree.leaves(state) if leaf.size > 1]
    copies.extend(len({np.asarray(s.data).tobytes() for s in leaf.addressable_shards}) for leaf in leaves)
    return state, values

def run(save=None, watch=7):
    found = mf.incontext.train_learner(task, model, key, points=4, optimization=settings, watch=watch, save=save)
    vector = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(found.model)])
    on = {len(leaf.devices()) for leaf in jax.tree.leaves(found.model)}
    return vector, found.losses, found.records["norm"], on

loop._chunk, stop = seen, None
both = run()
report = {"devices": jax.local_device_count(), "meshes": sorted(set(meshes)), "copies": sorted(set(copies))}
report["on"] = sorted(both[3])
calls.clear(); stop = 3
try:
    run(sys.argv[1])
except KeyboardInterrupt:
    report["interrupted"] = True
stop = None
again = run(sys.argv[1])
report["same bits"] = all(a.tobytes() == b.tobytes() for a, b in zip(both[:3], again[:3]))
loop.shared_over = lambda objective: None
alone = run()
report["apart"] = [float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(both[:3], alone[:3])]
report["moved"] = float(np.abs(np.concatenate([np.ravel(l) for l in jax.tree.leaves(model)]) - alone[0]).max())
print(json.dumps(report))
"""


def ran(program: str, *arguments: str, **variables: str) -> str:
    given = environment(**({"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"} | variables))
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, env=given, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_two_devices_train_as_one_does(tmp_path: Path) -> None:
    found = json.loads(ran(PROGRAM, str(tmp_path / "run"), JAX_NUM_CPU_DEVICES="2"))
    assert found["devices"] == 2
    assert found["meshes"] == [2]
    # without the mean over devices, their states part after the first step
    assert found["copies"] == [1]
    assert found["on"] == [1]
    assert found["interrupted"]
    assert found["same bits"]
    # rounding of float32 over 20 steps; another half of the prompts, or one half twice, is apart by as much as it moved
    assert found["moved"] > 0.02
    assert max(found["apart"]) < 2e-5


WORLD = mf.incontext.bayes.ginc(jax.random.key(0), concepts=2, values=2, slots=3, symbols=5)
READER = LanguageModel.random(KEY, SMALL, vocabulary=5, context=6)


@pytest.mark.parametrize(
    ("objective", "model"),
    [
        (InContextLoss(tasks.linear(2), None, 6, 4), InContextModel.random(KEY, 2, SMALL, points=4)),
        (InContextLoss(tasks.linear(2), None, 6, 4), InContextModel.random(KEY, 2, SMALL, reading="measure")),
        (CorpusLoss(jnp.arange(60) % 5, 6), READER),
        (DocumentLoss(WORLD, 6), READER),
    ],
    ids=["sequence", "measure", "corpus", "documents"],
)
def test_the_mean_of_the_parts_is_the_objective(objective: Any, model: Any) -> None:
    assert isinstance(objective, Divisible)
    whole = float(objective(model, KEY, 0))
    for count in (2, 3):
        parts = [float(objective.part(model, KEY, 0, i, count)) for i in range(count)]
        assert np.mean(parts) == pytest.approx(whole, rel=1e-5)
        # a part that is always the first one would be as large as the others
        assert np.ptp(parts) > 1e-3 * whole


def test_a_batch_that_cannot_be_shared_out_stays_on_one_device() -> None:
    assert shared_over(lambda weights, key, step: 0.0) is None
    assert shared_over(InContextLoss(tasks.linear(2), None, 1, 4)) is None


def test_as_many_devices_take_part_as_divide_the_batch() -> None:
    assert [equal_parts(batch, 6) for batch in (64, 12, 7, 15, 5)] == [4, 6, 1, 5, 5]


def test_cores_become_devices_unless_it_is_too_late_or_the_user_has_said_otherwise() -> None:
    cores = min(len(os.sched_getaffinity(0)), 8)
    new = "import measureformer as mf; print(mf.use_cores(), mf.use_cores())"
    late = "import jax; jax.devices(); import measureformer as mf; print(mf.use_cores())"
    assert ran(new).split() == [str(cores)] * 2
    assert ran(late).split() == ["1"]
    assert ran(new, JAX_NUM_CPU_DEVICES="3").split() == ["3"] * 2
    assert ran(new, XLA_FLAGS="--xla_force_host_platform_device_count=3").split() == ["3"] * 2


def test_the_rate_is_that_of_optax() -> None:
    import optax

    for steps, warmup in ((50, 0.1), (7, 0.0), (1, 0.0), (10, 0.95)):
        optimization = Optimization(steps=steps, rate=0.5, warmup=warmup, clip=None, method="sgd")
        rise = int(warmup * steps)
        known = optax.warmup_cosine_decay_schedule(0.0 if rise else 0.5, 0.5, rise, max(steps, rise + 1), 0.005)
        rule = optimization.optimizer
        state = rule.init(jnp.ones(()))
        for step in range(steps + 3):
            change, state = rule.update(jnp.ones(()), state)
            assert float(change) == pytest.approx(-float(known(step)), rel=1e-5)


def test_the_cosine_of_the_rate_is_computed_once_and_not_for_every_weight() -> None:
    rule = Optimization(steps=100, clip=None).optimizer
    weights = jnp.ones(1000, jnp.float32)
    text = jax.jit(rule.update).lower(weights, rule.init(weights)).compile().as_text()
    # computations are blocks with a blank line between them
    with_cosine = [block for block in text.split("\n\n") if " cosine(" in block]
    assert with_cosine
    assert not any(re.search(r"f32\[1000\]", block) for block in with_cosine)
