"""Tasks on Dask that end in a way that would end a worker, or by a result that nobody can fetch."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import threading
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from distributed import Client

from spliter import TaskFailedError, TaskNotSerializableError, gather, split
from tests.dask_backend.conftest import StartCluster

pytestmark = [pytest.mark.backend("dask"), pytest.mark.timeout(120)]


def raise_it(partition: Any, error: BaseException) -> None:
    """Raise an error."""
    raise error


def exit_it(partition: Any) -> None:
    """End the process, as programs do."""
    sys.exit("no such file")


def pid(partition: Any) -> int:
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


def test_a_module_that_workers_lack(
    start_cluster: StartCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = start_cluster(n_workers=1)
    file = tmp_path / "kernels_of_mine.py"
    file.write_text("def rows(partition):\n    return sum(map(len, partition))\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    rows = importlib.import_module(file.stem).rows
    parts = split(da.ones(4, chunks=2).persist())

    def late(partition: Any) -> Any:
        import kernels_of_mine  # type: ignore[import-not-found]

        return kernels_of_mine.rows(partition)

    for fn in (rows, late):
        with pytest.raises(ModuleNotFoundError, match="kernels_of_mine") as caught:
            gather(parts.map(fn))
        (note,) = caught.value.__notes__
        assert f"at worker {parts.locations[0]}" in note
        assert "client.upload_file('kernels_of_mine.py')" in note
    client.upload_file(str(file))
    assert gather(parts.map(rows)) == gather(parts.map(late)) == [4]
