"""Splits that are made and dropped leave nothing behind: at the client, the scheduler, the workers.

For Dask ``benchmarks/soak.py`` counts, here in its short form.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable

import numpy as np
import pytest

from tests.conftest import ROOT, RunPython
from tests.scale.uses import USES, mapped, own_objects, use

WAIT = 60


def eventually(holds: Callable[[], bool]) -> bool:
    """Wait, at most a minute, until something holds."""
    deadline = time.monotonic() + WAIT
    while not (held := holds()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return held


@pytest.mark.backend("local")
def test_local() -> None:
    blocks = [np.arange(3) + 3 * at for at in range(20)]
    use(blocks, sum(range(60)), times=8)  # what is made once is made
    before, threads = own_objects(), threading.active_count()
    use(blocks, sum(range(60)), times=160)
    assert eventually(lambda: own_objects() == before)
    assert threading.active_count() <= threads
    # Nor are the blocks held: by anything.
    gone = [weakref.ref(block) for block in blocks]
    del blocks
    assert eventually(
        lambda: own_objects() == before and not any(one() is not None for one in gone)
    )


@pytest.mark.backend("dask")
def test_dask_while_tasks_go_on(run_python: RunPython) -> None:
    done = run_python(str(ROOT / "benchmarks" / "soak.py"), "--tasks", "1000", "--looks", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    _, *rows = [line.split() for line in done.stdout.splitlines() if line.strip()[:1].isdigit()]
    assert int(rows[-1][0]) >= 1000
    assert {row[2] for row in rows} == {"0"}, done.stdout


@pytest.mark.backend("dataclay")
def test_dataclay() -> None:
    pytest.importorskip("dataclay")
    from spliter import Location
    from spliter_backends.dataclay_collections import from_array
    from spliter_backends.dataclay_executor import current_executor
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
        steady: list[list[int]] = [[], []]

        def is_steady() -> bool:
            steady[:] = [steady[1], at_backends()]
            return steady[0] == steady[1]

        assert eventually(is_steady)
        before, there = own_objects(), steady[1]
        use(x, sum(range(60)), 5 * len(ways), ways)
        assert eventually(lambda: own_objects() == before)
        assert eventually(lambda: at_backends() == there)
