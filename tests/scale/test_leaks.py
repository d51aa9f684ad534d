"""Splits that are made and dropped leave nothing behind: at the client, the scheduler, the workers.

For Dask ``tests/scale/soak.py`` counts, here in a short form without its control, and in a cluster
that keeps records of what has run, as it does by default.
"""

from __future__ import annotations

import subprocess
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import pytest

from tests.conftest import RunPython
from tests.scale.uses import USES, mapped, own_objects, use

WAIT = 60

T = TypeVar("T")


def eventually(holds: Callable[[], bool]) -> bool:
    """Wait, at most a minute, until something holds."""
    deadline = time.monotonic() + WAIT
    while not (held := holds()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return held


def more_than(before: Counter[str]) -> Counter[str]:
    """Count the objects that were not there before; some of those may have gone by now."""
    return own_objects() - before


def settled(count: Callable[[], T]) -> T:
    """Count until two counts in a row are the same, and return that: tasks end behind futures."""
    counts: list[T] = []

    def is_settled() -> bool:
        counts.append(count())
        return counts[-1:] == counts[-2:-1]

    assert eventually(is_settled), counts
    return counts[-1]


@pytest.mark.backend("local")
def test_local() -> None:
    blocks = [np.arange(3) + 3 * at for at in range(20)]
    use(blocks, sum(range(60)), times=8)  # what is made once is made
    before, threads = settled(own_objects), threading.active_count()
    use(blocks, sum(range(60)), times=400)
    assert eventually(lambda: not more_than(before)), more_than(before)
    assert threading.active_count() <= threads
    # Nor are the blocks held: by anything.
    gone = [weakref.ref(block) for block in blocks]
    del blocks
    assert eventually(
        lambda: not more_than(before) and not any(one() is not None for one in gone)
    ), more_than(before)


@pytest.mark.backend("dask")
@pytest.mark.timeout(600)
def test_dask_while_tasks_go_on(run_python: RunPython) -> None:
    # Eight uses of nine make a Split. Tasks, keys, values and SplIter's objects are as before;
    # objects, allocated blocks and resident memory of all processes within a margin.
    done = soak(run_python, "--tasks", "900", "--looks", "1", "--spans")
    assert done.returncode == 0, done.stdout + done.stderr
    tasks, uses, left = done.stdout.splitlines()[-3].split()[:3]
    assert int(tasks) >= 900
    assert int(uses) * 8 // 9 >= 200, done.stdout
    assert left == "0"


@pytest.mark.backend("dask")
@pytest.mark.timeout(600)
def test_a_leak_is_seen(run_python: RunPython) -> None:
    done = soak(run_python, "--tasks", "300", "--looks", "1", "--leak", "100", "--patience", "5")
    assert done.returncode == 1, done.stdout + done.stderr
    for place in ("client and scheduler", "workers"):
        assert f"left behind: {place}: " in done.stdout, done.stdout
    assert "objects Counter" not in done.stdout, done.stdout


def soak(run_python: RunPython, *options: str) -> subprocess.CompletedProcess[str]:
    """Count in a cluster of two workers that has nothing else to do."""
    return run_python(
        "-m", "tests.scale.soak", "--blocks", "8", "--no-control", *options, timeout=300
    )


@pytest.mark.backend("dataclay")
def test_dataclay() -> None:
    pytest.importorskip("dataclay")
    from spliter import Location
    from spliter_backends.dataclay import from_array
    from spliter_backends.dataclay.executor import current_executor
    from tests.dataclay_backend import programs
    from tests.dataclay_backend.conftest import start

    with start(2) as cluster:
        ids = [Location(str(one)) for one in cluster.backend_ids]

        def at_backends() -> list[int]:
            return [
                current_executor().submit(count, (), {}, at).result(timeout=WAIT)
                for count in (programs.objects, programs.kept)
                for at in ids
            ]

        x = from_array(np.arange(60), chunks=3)
        # The blocks of a new collection are persistent objects of the user's.
        ways = [way for way in USES if way is not mapped]
        use(x, sum(range(60)), len(ways), ways)
        there = settled(at_backends)
        before = settled(own_objects)
        use(x, sum(range(60)), 5 * len(ways), ways)
        assert eventually(lambda: not more_than(before)), more_than(before)
        assert eventually(lambda: at_backends() == there), (at_backends(), there)
