"""The lens against `transformers` in eager mode: forward passes of the sizes of MiniLM and SmolLM2-135M.

    make bench                                  all of it
    .venv/bin/python benchmarks/lens.py --fast  shorter texts, to try it

The models have random weights and the shapes of the real ones: time does not depend on the numbers. Both are held to
one core and their processor time is compared: on a busy machine, threads that wait for each other would be counted as
work. Whole reports are timed on real weights, where `make lens-data` has put them, with all cores.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from compare import Number, machine, row, write

import measureformer as mf

FAST = "--fast" in sys.argv
ROUNDS = 3 if FAST else 7
PEER = "transformers"
MODELS: dict[str, tuple[str, dict[str, Any], tuple[int, ...]]] = {
    "MiniLM": (
        "bert",
        {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536},
        (64,) if FAST else (64, 256),
    ),
    "SmolLM2-135M": (
        "llama",
        {
            "hidden_size": 576,
            "num_hidden_layers": 4 if FAST else 30,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "intermediate_size": 1536,
            "vocab_size": 49152,
            "rope_theta": 1e5,
            "tie_word_embeddings": True,
        },
        (64,) if FAST else (512,),
    ),
}


CORES = os.sched_getaffinity(0)


def main() -> None:
    os.sched_setaffinity(0, {min(CORES)})
    import torch
    import transformers

    torch.manual_seed(0)
    rows, numbers = [], []
    for name, (family, settings, lengths) in MODELS.items():
        config = transformers.AutoConfig.for_model(family, **settings)
        kind = transformers.AutoModelForMaskedLM if family == "bert" else transformers.AutoModelForCausalLM
        theirs = kind.from_config(config, attn_implementation="eager").eval()
        with tempfile.TemporaryDirectory() as folder:
            theirs.save_pretrained(folder)
            ours = mf.lens.load(folder)
            for tokens in lengths:
                runs = {"ours": partial(_lens, ours, tokens), PEER: partial(_peer, theirs, tokens)}
                work = f"{name}, {tokens} tokens"
                rows.append(row(work, runs, rounds=ROUNDS, clock=time.process_time, bars={PEER: 1.0}))
            weights = 4 * ours.checkpoint.size / 1e6
            numbers.append(Number(f"{name}: peak memory of a trace", peak(folder, lengths[-1]), 2 * weights, "MB"))
    about = machine({"ours": 1, PEER: torch.get_num_threads()})
    write("lens-fast" if FAST else "lens", rows, numbers, about)
    if not FAST:
        for number in reports():
            # after each: the last one takes minutes
            numbers.append(number)
            write("lens", rows, numbers, about)


def _ids(tokens: int) -> np.ndarray:
    return np.arange(tokens) * 7 % 1000 + 5


def _lens(model: Any, tokens: int) -> None:
    model.logits(_ids(tokens)).block_until_ready()


def _peer(model: Any, tokens: int) -> None:
    import torch

    with torch.inference_mode():
        model(torch.from_numpy(_ids(tokens))[None], output_hidden_states=True)


def peak(folder: str, tokens: int) -> float:
    """Megabytes that a process of its own needs to load a model and to trace a text, above those of JAX alone."""
    program = (
        "import pathlib, sys, measureformer as mf\n"
        "mf.attend([[0.0]], [[0.0]], [[0.0]])\n"
        # what getrusage says of a process includes its parent's memory at the time of the fork
        "said = lambda: pathlib.Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0]\n"
        "used = lambda: int(said()) * 1024 / 1e6\n"
        "before = used()\n"
        "mf.lens.load(sys.argv[1]).trace(list(range(int(sys.argv[2]))))\n"
        "print(used() - before)"
    )
    command = [sys.executable, "-c", program, folder, str(tokens)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout)


def reports() -> Iterator[Number]:
    """A trace and full reports on real weights, each in a process of its own, with all compilation."""
    data = Path(os.environ.get("MEASUREFORMER_LENS_DATA", "lens-data"))
    trace = "import sys, measureformer as mf\nmf.lens.load(sys.argv[1]).trace([i * 7 % 1000 + 5 for i in range(512)])"
    with tempfile.TemporaryDirectory() as out:
        report = ["-m", "measureformer", "lens"]
        runs = (
            ("minilm", "report on 256 tokens", [*report, "--tokens", "256", "--out", f"{out}/minilm"], 120.0),
            ("smollm2", "trace of 512 tokens", ["-c", trace], 15.0),
            ("smollm2", "report on 512 tokens", [*report, "--tokens", "512", "--out", f"{out}/smollm2"], 600.0),
        )
        for name, what, command, limit in runs:
            if not (data / name / "done").is_file():
                print(f"no weights of {name}: make lens-data", file=sys.stderr)
                continue
            wall, processor = seconds([*command, str(data / name)])
            yield Number(f"{name}: {what}", wall, limit, "s")
            # what others do on the machine meanwhile is not in it; two cores have two seconds in each second
            yield Number(f"{name}: {what}, processor time of all cores", processor, 2 * limit, "s")


def seconds(command: list[str]) -> tuple[float, float]:
    """Seconds by the clock and by the processors."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    # all cores again
    command = ["taskset", "-c", ",".join(map(str, sorted(CORES))), sys.executable, *command]
    subprocess.run(command, capture_output=True, check=True, timeout=3600)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
