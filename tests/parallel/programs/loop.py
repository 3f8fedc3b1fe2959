"""A worker that exchanges data until it is ended. Arguments: a folder, and what goes wrong in worker 1, if anything."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

folder, trouble = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""
number = os.environ["MEASUREFORMER_WORKER"]
print(f"worker {number} starts", flush=True)
if trouble == "early" and number == "1":
    sys.exit("no data")

import measureformer as mf  # noqa: E402
from measureformer.errors import WorkerLost  # noqa: E402

# a busy machine may keep a worker from its heartbeat for a while: short only where that is what is tested
mesh = mf.join_workers(heartbeat=3 if trouble == "stop" else 20)
mu = mf.shard(mf.Discrete.uniform([[0.0], [1.0], [2.0]]), mesh)
mf.gather(mu)
(folder / f"worker{number}.new").write_text(str(os.getpid()), encoding="utf-8")
(folder / f"worker{number}.new").rename(folder / f"worker{number}")
print(f"worker {number} works", flush=True)
if trouble == "raise" and number == "1":
    raise ValueError("a mistake in the script")
if trouble == "exit" and number == "1":
    sys.exit("no data for me")
if trouble == "leave" and number == "1":
    # with exit code 0, while worker 0 still exchanges data
    sys.exit(0)
if trouble == "finish":
    # worker 1 is done long before worker 0; nobody is lost
    time.sleep(2 if number == "0" else 0)
    if number == "0":
        # on its own, which is no exchange
        mf.flow(mf.Linear([[1.0]]), mf.Discrete.uniform([[1.0]]), [0.0, 1.0])
        mf.gather(mf.Discrete.uniform([[1.0]]))
    print(f"worker {number} is done", flush=True)
    sys.exit(0)
end = time.monotonic() + 100
try:
    while time.monotonic() < end:
        mf.gather(mu)
        time.sleep(0.02)
except WorkerLost as loss:
    print(f"worker {number} caught WorkerLost", flush=True)
    if trouble != "catch":
        raise
    # a program that has caught the loss ends without waiting for the dead
    print(f"worker {number} saves its work: {str(loss).partition(' (')[0]}", flush=True)
