"""Process of a peer: takes the requested actions, and answers with times and checksums in JSON.

``python -m spliter_experiments.layouts.program PORT TOKEN`` connects to a port of this machine. It
needs SplIter, NumPy and what its ways need. Under ``mpiexec -n 2`` both ranks connect, receive the
same requests and answer.
"""

from __future__ import annotations

import functools
import json
import platform
import socket
import sys
import timeit
import zlib
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from spliter_experiments.layouts.movers import (
    IN_ONE_PROCESS,
    Call,
    PingPong,
    mover_of,
    ping_pong_of,
    stage_of,
)

LEAST_SECONDS: Final = 0.004
"""Calls are repeated until they take so long: over a hundred times the cost of reading the clock
and of waiting for the other rank."""


def timed(call: Call, comm: Any = None) -> float:
    """Return the seconds of a call, of as many as take `LEAST_SECONDS`; in step with `comm`."""
    calls = 1
    while True:
        seconds = timeit.timeit(call, number=calls)
        if comm is not None:
            seconds = comm.bcast(seconds)
        if seconds >= LEAST_SECONDS:
            return seconds / calls
        calls *= 2


def move(way: str, case: str, size: int, action: str) -> dict[str, Any]:
    """Pack, unpack or copy; return the seconds and the checksum of what that filled."""
    stage = stage_of(case, size)
    stage.set_up(action)
    call = mover_of(way, stage).call(stage, action)
    seconds = timed(call)
    return {"seconds": seconds, "value": zlib.crc32(stage.result(action, call).data)}


def exchange(way: str, case: str, size: int, action: str) -> dict[str, Any]:
    """Exchange a pattern between two ranks; return the seconds, and whether all is right."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    program = _ping_pong(way, case, size)
    program.stage.set_up("unpack")
    comm.Barrier()
    seconds = timed(program.run, comm)
    return {"seconds": seconds, "value": comm.allreduce(program.is_right(), MPI.LAND)}


@functools.lru_cache(maxsize=2)
def _ping_pong(way: str, case: str, size: int) -> PingPong:
    from mpi4py import MPI

    return ping_pong_of(case, size, way, MPI.COMM_WORLD)


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to a request, or the error of the attempt."""
    try:
        return (move if request["action"] in IN_ONE_PROCESS else exchange)(**request)
    except Exception as error:  # noqa: BLE001 - the parent reports any error
        return {"error": f"{type(error).__name__}: {error}"}


def greeting(with_mpi: bool) -> dict[str, Any]:
    """Return versions and, with MPI, the library's name and the number of ranks."""
    found = {"versions": {"python": platform.python_version(), "numpy": np.__version__}}
    if not with_mpi:
        return found
    from mpi4py import MPI

    vendor, numbers = MPI.get_vendor()
    version = ".".join(map(str, numbers))
    return {**found, "mpi": vendor, "mpi_version": version, "ranks": MPI.COMM_WORLD.size}


def main(port: str, token: str, mpi: str = "") -> None:
    """Answer requests until the connection is closed; start MPI if the last argument is ``mpi``."""
    with socket.create_connection(("127.0.0.1", int(port))) as connection:
        lines = connection.makefile("rw", encoding="utf-8")

        def send(what: Mapping[str, Any]) -> None:
            lines.write(json.dumps(what) + "\n")
            lines.flush()

        send({"token": token, **greeting(mpi == "mpi")})
        for line in lines:
            request = json.loads(line)
            found = answer(request)
            send(found)
            if "error" in found and request["action"] not in IN_ONE_PROCESS:
                _abort()


def _abort() -> None:
    """End both ranks: the other one waits for a message that does not come."""
    from mpi4py import MPI

    MPI.COMM_WORLD.Abort(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
