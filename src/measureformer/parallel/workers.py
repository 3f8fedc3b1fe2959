"""Workers: processes that share one mesh of devices, on one machine or on many, and notice when one of them is lost.

Every worker runs the same program. `join_workers` makes them meet; from then on arrays can be spread over all devices,
and every call that touches such an array is made by all workers together. When a worker dies, the exchanges of the
others fail: `collective` turns their errors into `WorkerLost`. A process that is left alone ends at once, with the exit
code `LOST`: an ordinary end of the interpreter would wait for the dead.
"""

from __future__ import annotations

import atexit
import os
import socket
import sys
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NoReturn

import jax
from jax.sharding import Mesh

from measureformer.errors import LaunchError, WorkerLost
from measureformer.parallel.launch import COORDINATOR, COUNT, EXCHANGES, INDEX, LOST, Exchanges
from measureformer.parallel.mesh import token_mesh


@dataclass
class _State:
    """What this process knows of the others: its number, theirs, whether one has been lost, and how it was to end.

    `begun` counts the exchanges, for the launcher, which reads them in the open file `told`.
    """

    index: int = 0
    count: int = 1
    lost: bool = False
    status: Any = None
    begun: int = 0
    told: int | None = None


_state = _State()


def join_workers(
    coordinator: str | None = None,
    count: int | None = None,
    index: int | None = None,
    *,
    heartbeat: int = 20,
    start: int = 60,
    finish: int = 300,
) -> Mesh:
    """Connect to the other workers; returns the mesh of all their devices, with the one axis "tokens".

    Call it before anything is computed. Without the first three arguments and their environment variables, which
    `measureformer launch` sets, this process is alone, and the mesh is that of its own devices. Every worker listens
    only on the address from which it reaches the coordinator: on the loopback, nothing is open to the network.

    Arguments:
        coordinator: address "host:port" at which worker 0 listens; by default MEASUREFORMER_COORDINATOR.
        count: number of workers; by default MEASUREFORMER_WORKERS.
        index: number of this worker, from 0; by default MEASUREFORMER_WORKER.
        heartbeat: a worker that is silent for so many seconds counts as lost.
        start: seconds within which all workers must have arrived.
        finish: seconds that a worker waits at its end for the others to finish.

    >>> import measureformer as mf
    >>> mesh = mf.join_workers()
    >>> mesh.axis_names, mf.shard(mf.Discrete.uniform([[0.0], [1.0]]), mesh).dim
    (('tokens',), 1)
    """
    place = _place(coordinator, count, index, os.environ)
    if place is not None and not jax.distributed.is_initialized():
        _meet(*place, heartbeat=heartbeat, start=start, finish=finish)
    return token_mesh()


def _place(
    coordinator: str | None, count: int | None, index: int | None, environment: Mapping[str, str]
) -> tuple[str, int, int] | None:
    """Coordinator, number of workers and number of this one; None if this process is alone."""
    given = {COORDINATOR: coordinator, COUNT: count, INDEX: index}
    entries = {name: environment.get(name) if value is None else str(value) for name, value in given.items()}
    missing = [name for name, value in entries.items() if value is None]
    if len(missing) == 3:
        return None
    if missing:
        raise LaunchError(
            got=f"no {' and no '.join(missing)} where others are set",
            need="all three of coordinator, count and index, or none",
            do="Pass them to join_workers, set them in the environment, or start with `measureformer launch`.",
        )
    address, workers, number = (str(entries[name]) for name in given)
    host, colon, port = address.rpartition(":")
    whole = workers.isdecimal() and number.isdecimal() and int(number) < int(workers)
    if not whole or not (host and colon and port.isdecimal()):
        raise LaunchError(
            got=f"coordinator {address!r}, {workers} workers, this one number {number}",
            need='an address "host:port", and a number from 0 to the number of workers minus 1',
            do="Give every worker the same address and count, and a number of its own.",
        )
    return address, int(workers), int(number)


def _meet(coordinator: str, count: int, index: int, *, heartbeat: int, start: int, finish: int) -> None:
    address, port = _own_address(coordinator), coordinator.rpartition(":")[2]
    # a worker that is asked to end should end: the service that turns SIGTERM into a notice would keep it alive
    jax.config.update("jax_enable_preemption_service", False)
    _exchange_on(address)
    # a meeting that fails ends the process inside the runtime, without a word on who is missing: be a little earlier
    alarm = threading.Timer(start, _leave, [_not_met(coordinator, count, index, start)])
    alarm.daemon = True
    alarm.start()
    try:
        jax.distributed.initialize(
            coordinator,
            count,
            index,
            cluster_detection_method="deactivate",
            coordinator_bind_address=f"[{address}]:{port}" if ":" in address else f"{address}:{port}",
            initialization_timeout=start + 10,
            heartbeat_timeout_seconds=heartbeat,
            shutdown_timeout_seconds=finish,
        )
        _state.index, _state.count = index, count
        if EXCHANGES in os.environ:
            _state.told = os.open(os.environ[EXCHANGES], os.O_WRONLY | os.O_CREAT, 0o600)
        sys.excepthook, sys.exit = _end_on_exception, _remembering(sys.exit)
        atexit.register(_end_without_waiting)
        jax.devices()
    except RuntimeError as error:
        raise LaunchError(
            got=f"workers that cannot meet ({error})",
            need="join_workers() before anything is computed, and a free port at the coordinator",
            do="Make it the first call of the script, and take another port if it is in use.",
        ) from error
    finally:
        alarm.cancel()


def _own_address(coordinator: str) -> str:
    """The address of this machine on the network of the coordinator. (Asking for a route sends nothing.)"""
    host, _, port = coordinator.rpartition(":")
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(target)
            return probe.getsockname()[0]
    except OSError as error:
        raise LaunchError(
            got=f"the coordinator {coordinator!r}, to which there is no way from here ({error})",
            need="the address of a machine that every worker can reach",
            do="Check the name and the network.",
        ) from error


def _exchange_on(address: str) -> None:
    """Let the exchanges between CPUs listen on this address; left alone, they take whatever the host's name means."""
    try:
        from jax._src import distributed, xla_bridge
        from jax._src.lib import _jax  # pyright: ignore[reportPrivateImportUsage, reportPrivateUsage]

        gloo = _jax.make_gloo_tcp_collectives

        def client() -> Any:
            return xla_bridge.make_cpu_client(gloo(distributed.global_state.client, hostname=address))

        xla_bridge.register_backend_factory("cpu", client, priority=0, fail_quietly=False)
    except (ImportError, AttributeError, RuntimeError):
        # internals that another release may name differently; its own choice of address serves as well. What is too
        # late for the factory is too late for the meeting, and refused there.
        return


def exchanging() -> None:
    """Count an exchange that every worker makes, before it begins."""
    if _state.told is not None:
        _state.begun += 1
        Exchanges(_state.begun, ended=False).write(_state.told)


@contextmanager
def collective(*, certain: bool = False) -> Generator[None]:
    """Around what may exchange data between workers: the error of a broken exchange becomes `WorkerLost`.

    Arguments:
        certain: whether it is known that every worker does this.
    """
    if certain:
        exchanging()
    try:
        yield
    except Exception as error:
        if not _is_loss(error):
            raise
        _state.lost = True
        raise _lost(error) from error


_STATUSES = {"ABORTED", "CANCELLED", "DEADLINE_EXCEEDED", "INTERNAL", "UNAVAILABLE", "UNKNOWN"}
"""With which the runtime ends an exchange; it has others for what the caller did, and for memory that is used up."""


def _is_loss(error: BaseException) -> bool:
    """Whether this is the runtime's way of saying that another process is gone: by type and status of the error.

    The type is that of all errors of the runtime, or `ValueError` itself where a result is fetched; the status is what
    it writes before the first colon.
    """
    if _state.count == 1 or type(error) not in (jax.errors.JaxRuntimeError, ValueError):
        return False
    return str(error).partition(":")[0] in _STATUSES


def _lost(error: BaseException) -> WorkerLost:
    said = " ".join(str(error).split())[:200]
    return WorkerLost(
        got=f"a broken exchange in worker {_state.index} of {_state.count} ({said})",
        need="all workers alive",
        do="Another worker has ended: its own last lines say why.",
    )


def _not_met(coordinator: str, count: int, index: int, seconds: int) -> WorkerLost:
    return WorkerLost(
        got=f"worker {index} alone for {seconds} s at {coordinator}",
        need=f"{count} workers there",
        do="Start the missing ones, or look at what they said before they ended.",
    )


def _end_on_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """An uncaught error ends this worker at once: if it waited for the others at exit, they would wait for it."""
    if isinstance(error, WorkerLost) or _is_loss(error):
        _leave(error if isinstance(error, WorkerLost) else _lost(error))
    sys.__excepthook__(kind, error, trace)
    _exit(130 if issubclass(kind, KeyboardInterrupt) else 1)


def _remembering(leave: Callable[[Any], NoReturn]) -> Callable[..., NoReturn]:
    """`sys.exit`, with a note of the exit code: what runs at exit is not told by Python."""

    def remembering(status: Any = None, /) -> NoReturn:
        _state.status = status
        leave(status)

    return remembering


def _end_without_waiting() -> None:
    """At exit after `WorkerLost` or a failure. It runs before the runtime's own handler, which would wait."""
    if _state.lost:
        _exit(LOST)
    if _state.status not in (None, 0):
        # like Python, which has printed a status that is not a number
        _exit(_state.status if isinstance(_state.status, int) else 1)
    if _state.told is not None:
        Exchanges(_state.begun, ended=True).write(_state.told)


def _leave(loss: WorkerLost) -> NoReturn:
    print(f"measureformer: {loss}", file=sys.stderr)
    _exit(LOST)


def _exit(code: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
