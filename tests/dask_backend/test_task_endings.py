"""Tasks on Dask that end in a way that would end a worker, or by a result that nobody can fetch."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from typing import Any

import dask.array as da
import numpy as np
import pytest
from distributed import Client

from spliter import TaskFailedError, TaskNotSerializableError, gather, split

pytestmark = [pytest.mark.backend("dask"), pytest.mark.timeout(120)]


def raise_it(partition: Any, error: BaseException) -> None:
    """Raise an error."""
    raise error


def exit_it(partition: Any) -> None:
    """End the process, as programs do."""
    sys.exit("no such file")


def pid(partition: Any) -> int:
    """Return the process."""
    return os.getpid()


def generator(partition: Any) -> Any:
    """Return a generator, which cannot be pickled."""
    return (block for block in partition)


def with_lock(partition: Any) -> Any:
    """Return a lock among other things."""
    return {"lock": threading.Lock()}


def large(partition: Any) -> Any:
    """Return a result that is large, and a function."""
    return [str(number) for number in range(300_000)], np.ones(100_000), lambda: 5


def test_sys_exit_is_an_error_and_the_worker_goes_on(client: Client) -> None:
    parts = split(da.ones(4, chunks=2).persist())
    before = gather(parts.map(pid))
    with pytest.raises(TaskFailedError, match=r"sys.exit\('no such file'\)") as caught:
        parts[0].submit(exit_it).result(timeout=20)
    assert "in exit_it" in str(caught.value)
    assert gather(parts.map(pid)) == before


@pytest.mark.parametrize("error", [GeneratorExit("over"), asyncio.CancelledError("stop")])
def test_other_errors_that_are_no_exceptions(client: Client, error: BaseException) -> None:
    parts = split(da.ones(4, chunks=2).persist())
    with pytest.raises(TaskFailedError, match=f"the task raised {type(error).__name__}"):
        parts[0].submit(raise_it, error).result(timeout=20)


@pytest.mark.parametrize(("fn", "kind"), [(generator, "generator"), (with_lock, "dict")])
def test_a_result_that_cannot_be_pickled(client: Client, fn: Any, kind: str) -> None:
    parts = split(da.ones(4, chunks=2).persist())
    with pytest.raises(TaskNotSerializableError, match=rf"^{fn.__name__} returned a {kind}, "):
        parts[0].submit(fn).result(timeout=20)
    with pytest.raises(TaskNotSerializableError, match=rf"^{fn.__name__} returned a {kind}, "):
        gather(parts.map(fn))


def test_large_results_and_functions_can_be(client: Client) -> None:
    parts = split(da.ones(4, chunks=2).persist())
    texts, ones, five = parts[0].submit(large).result(timeout=20)
    assert (len(texts), ones.sum(), five()) == (300_000, 100_000, 5)
