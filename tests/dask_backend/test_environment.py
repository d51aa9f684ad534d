"""A scheduler or a worker that lacks SplIter, or has another version, is named by ``split``."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import dask.array as da
import pytest
from distributed import Client, wait

import spliter
from spliter import BackendNotUsableError, gather, split
from tests.dask_backend.programs import total

pytestmark = [pytest.mark.thorough, pytest.mark.backend("dask"), pytest.mark.timeout(120)]

WITHOUT = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("spliter", "spliter_backends"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Refuse())
"""
"""A sitecustomize.py of an environment without SplIter."""

OTHER = "import spliter; spliter.__version__ = '0.0.1'"
"""Of an environment with another version."""

Start = Callable[[str, str], None]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[Path, Start]]:
    """Start schedulers and workers as processes of their own, each with a sitecustomize.py."""
    address = tmp_path / "scheduler.json"

    with ExitStack() as stack:

        def begin(program: str, customization: str) -> None:
            folder = tmp_path / f"{program}-{time.monotonic_ns()}"
            folder.mkdir()
            (folder / "sitecustomize.py").write_text(customization, encoding="utf-8")
            options = {
                "scheduler": ["--port", "0", "--dashboard-address", "127.0.0.1:0"],
                "worker": ["--nthreads", "1", "--no-nanny", "--no-dashboard"],
            }[program]
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    f"distributed.cli.dask_{program}",
                    *options,
                    "--scheduler-file",
                    str(address),
                ],
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])},
                cwd=folder,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)

        yield address, begin


@pytest.mark.parametrize(
    ("scheduler", "worker", "says"),
    [
        (WITHOUT, "", "scheduler has no spliter, this program has"),
        (OTHER, OTHER, r"scheduler has spliter 0.0.1; tcp://\S+ has spliter 0.0.1, this program"),
    ],
    ids=["scheduler", "version"],
)
def test_split_names_the_processes(
    cluster: tuple[Path, Start], scheduler: str, worker: str, says: str
) -> None:
    address, begin = cluster
    begin("scheduler", scheduler)
    begin("worker", worker)
    with Client(scheduler_file=str(address), timeout=60) as client:
        client.wait_for_workers(1, timeout=60)
        x = da.ones(4, chunks=2).persist()
        with pytest.raises(BackendNotUsableError, match=says) as refused:
            split(x)
    assert f"pip install 'pyspliter[dask]=={spliter.__version__}'" in str(refused.value)


def test_a_worker_that_comes_later_is_asked_too(cluster: tuple[Path, Start]) -> None:
    address, begin = cluster
    begin("scheduler", "")
    begin("worker", "")
    with Client(scheduler_file=str(address), timeout=60) as client:
        client.wait_for_workers(1, timeout=60)
        (first,) = client.nthreads()
        x = da.ones(4, chunks=2).persist(workers=[first])
        assert sum(gather([total(part) for part in split(x)])) == 4
        begin("worker", WITHOUT)
        client.wait_for_workers(2, timeout=60)
        later = next(at for at in client.nthreads() if at != first)
        assert len(split(x).locations) == 1  # which does not concern it
        y = da.zeros(4, chunks=2).persist(workers=[later])
        wait(y)
        with pytest.raises(BackendNotUsableError, match=f"^{later} has no spliter, this program"):
            split(y)
