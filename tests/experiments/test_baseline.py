"""The plain processes compute what they should, report what fails, and never stay behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import psutil
import pytest

from spliter_experiments.compare.baseline import start_baseline
from spliter_experiments.compare.data.columns import Columns
from spliter_experiments.compare.data.readers import ArrayFilePoints
from spliter_experiments.compare.data.sources import Floats, GeneratedPoints, RowNumbers
from spliter_experiments.harness.errors import BaselineError
from tests.conftest import ROOT, SOURCE_ROOTS

POINTS = GeneratedPoints(rows=1000, dims=2, seed=3)


def describe(blocks: Sequence[Floats], factor: float = 1.0) -> tuple[int, int, float]:
    """Runs in a plain process: its id, its number of blocks and their sum."""
    return os.getpid(), len(blocks), factor * float(sum(block.sum() for block in blocks))


def fail(blocks: Sequence[Floats]) -> None:
    raise ValueError("what a kernel says")


def fail_to_return(blocks: Sequence[Floats]) -> object:
    return lambda: None


def stop_short(blocks: Sequence[Floats]) -> None:
    os._exit(3)


def never_answer(blocks: Sequence[Floats]) -> None:
    time.sleep(3600)


def threads_allowed(blocks: Sequence[Floats]) -> str | None:
    return os.environ.get("OMP_NUM_THREADS")


def is_alive(process: int) -> bool:
    """Whether a process exists and is more than an entry that nobody has collected yet."""
    try:
        return bool(psutil.Process(process).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def await_end(processes: Sequence[int], seconds: float = 20) -> list[int]:
    """Return those that still live after a while."""
    deadline = time.monotonic() + seconds
    while (alive := [pid for pid in processes if is_alive(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return alive


def test_blocks_are_shared_out_and_all_counted() -> None:
    with start_baseline(3) as floor:
        floor.load(POINTS, [300, 300, 300, 100])
        pids, blocks, sums = zip(*floor.call(describe), strict=True)
        assert len({*pids, os.getpid()}) == 4
        assert blocks == (2, 1, 1)
        np.testing.assert_allclose(sum(sums), POINTS.read(0, 1000).sum())
        assert [share[2] for share in floor.call(describe, 0.0)] == [0.0] * 3
        floor.load(POINTS, [1000])
        assert [share[1] for share in floor.call(describe)] == [1, 0, 0]
        floor.drop()
        assert [share[1] for share in floor.call(describe)] == [0, 0, 0]
    assert await_end(pids) == []


def make_sums(blocks: Sequence[Floats], factor: float) -> list[float]:
    return [factor * float(block.sum()) for block in blocks]


def test_what_a_kernel_makes_is_kept_until_the_blocks_go() -> None:
    with start_baseline(2) as floor:
        floor.load(POINTS, [400, 400, 200])
        floor.keep("sums", make_sums, 2.0)
        sums = floor.call(list, on="sums")
        assert [len(share) for share in sums] == [2, 1]
        np.testing.assert_allclose(sum(map(sum, sums)), 2 * POINTS.read(0, 1000).sum())
        assert [share[1] for share in floor.call(describe)] == [2, 1]
        for forget in (floor.drop, lambda: floor.load(POINTS, [1000])):
            floor.keep("sums", make_sums, 1.0)
            forget()
            with pytest.raises(BaselineError, match="KeyError: 'sums'"):
                floor.call(list, on="sums")


def check_aligned(blocks: Sequence[tuple[Floats, Floats]]) -> list[int]:
    for points, numbers in blocks:
        np.testing.assert_array_equal(points, POINTS.read(int(numbers[0]), int(numbers[-1]) + 1))
    return [len(numbers) for _, numbers in blocks]


def test_what_goes_with_the_points_comes_with_them() -> None:
    with start_baseline(2) as floor:
        floor.load(POINTS, [400, 400, 200], RowNumbers(1000))
        assert floor.call(check_aligned) == [[400, 400], [200]]


def test_each_process_is_told_how_many_threads_to_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    for threads in (1, 3):
        with start_baseline(1, threads=threads) as floor:
            assert floor.call(threads_allowed) == [str(threads)]
    assert "OMP_NUM_THREADS" not in os.environ


@pytest.mark.parametrize(
    ("kernel", "complaint"),
    [
        (fail, "failed: ValueError: what a kernel says"),
        (fail_to_return, "failed: .*pickle"),
        (stop_short, "has died"),
    ],
)
def test_failure_is_reported(kernel: object, complaint: str) -> None:
    with start_baseline(2) as floor, pytest.raises(BaselineError, match=complaint):
        floor._ask([("call", kernel, "blocks", ())] * 2)


def test_unreadable_points_are_reported(tmp_path: Path) -> None:
    missing = ArrayFilePoints(tmp_path / "none.npy", "none.npy", 1, Columns.numbered(1))
    with start_baseline(1) as floor, pytest.raises(BaselineError, match="InputError"):
        floor.load(missing, [1])


def test_process_that_does_not_answer_is_given_up_and_ended() -> None:
    with start_baseline(1, timeout=30) as floor:
        ((pid, _, _),) = floor.call(describe)
        floor._timeout = 0.2
        with pytest.raises(BaselineError, match="did not answer in time"):
            floor.call(never_answer)
    assert await_end([pid]) == []


def test_dead_process_is_noticed_before_it_is_asked() -> None:
    with start_baseline(1) as floor:
        ((pid, _, _),) = floor.call(describe)
        os.kill(pid, signal.SIGKILL)
        assert await_end([pid]) == []
        with pytest.raises(BaselineError, match="has died"):
            floor.call(describe)


KILLED_PARENT = """
import os, signal
from spliter_experiments.compare.baseline import start_baseline
from tests.experiments.test_baseline import describe
if __name__ == "__main__":
    with start_baseline(2) as floor:
        print(*[share[0] for share in floor.call(describe)], flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_processes_end_when_their_parent_is_killed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED_PARENT],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, SOURCE_ROOTS))},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 2
    assert await_end(pids) == []
