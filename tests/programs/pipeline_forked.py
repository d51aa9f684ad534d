"""Fork in, during and after a pipeline; both processes write what they get."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from spliter.pipeline import Rows, options, pipeline, splittable

N = 100_000


def fork(child: Callable[[], Any]) -> None:
    """Run a function in a forked process, which writes what it returns, and wait for that."""
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return
    signal.alarm(30)
    write(child)
    os._exit(0)


def write(function: Callable[[], Any]) -> None:
    """Write what a function returns, or the type of its error."""
    try:
        result = repr(function())
    except Exception as error:  # noqa: BLE001
        result = type(error).__name__
    os.write(sys.stdout.fileno(), f"{result}\n".encode())


@pipeline
def total(x: Any) -> float:
    return float((x * 2).sum())


def with_pending_calls() -> None:
    @pipeline
    def body(x: Any) -> Any:
        y = x * 2
        fork(lambda: float(y.sum()))
        return y.sum()

    write(lambda: float(body(np.ones(N))))


def after_a_run() -> None:
    write(lambda: total(np.ones(N)))
    fork(lambda: total(np.ones(N)))


def in_a_batch() -> None:
    parent = os.getpid()
    children: list[int] = []

    def forking(x: Any) -> Any:
        if threading.current_thread() is threading.main_thread() and not children:
            children.append(os.fork())
        time.sleep(0.001)  # let the other thread have batches, too
        return x * 2

    doubled = pipeline(splittable(forking, x=Rows(), returns=Rows()))
    signal.alarm(30)
    write(lambda: float(doubled(np.ones(N)).sum()))
    if os.getpid() != parent:
        os._exit(0)
    os.waitpid(children[0], 0)


if __name__ == "__main__":
    with options(threads=2, batch=1000):
        globals()[sys.argv[1]]()
