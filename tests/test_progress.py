"""Futures as they finish, and the bar that shows it, on real engines."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from spliter import (
    InvalidArgumentError,
    PackageMissingError,
    TaskTimeoutError,
    as_completed,
    gather,
    progress,
    split,
)
from spliter_backends.local import LocalExecutor
from spliter_backends.local.executor import LocalFuture
from tests.conftest import RunPython
from tests.fake_engine import fake_split

BOUND = 60.0


class QuietFuture(LocalFuture):
    """A future that calls nobody back."""

    @property
    def add_done_callback(self) -> Any:
        raise AttributeError


def lengths(part: Any) -> int:
    return sum(map(len, part))


def test_futures_come_in_the_order_in_which_they_finish() -> None:
    executor = LocalExecutor(threads=3)
    gates = [threading.Event() for _ in range(3)]
    futures = [executor.submit(gate.wait, (BOUND,), {}) for gate in gates]
    seen = []
    gates[1].set()
    for future in as_completed(futures, timeout=BOUND):
        at = futures.index(future)
        seen.append(at)
        if at != 0:
            gates[{1: 2, 2: 0}[at]].set()
    assert seen == [1, 2, 0]


def test_failed_and_repeated_futures_come_once_each() -> None:
    executor = LocalExecutor(threads=1)
    failing = executor.submit(int, ("x",), {})
    fine = executor.submit(int, ("1",), {})
    came = list(as_completed([failing, fine, failing], timeout=BOUND))
    assert came.count(failing) == 2
    assert came.count(fine) == 1
    with pytest.raises(ValueError, match="invalid literal"):
        failing.result(timeout=BOUND)


def test_waiting_has_a_bound_if_the_caller_gives_one() -> None:
    executor = LocalExecutor(threads=1)
    gate = threading.Event()
    futures = [executor.submit(gate.wait, (BOUND,), {}), executor.submit(gate.wait, (BOUND,), {})]
    try:
        with pytest.raises(TaskTimeoutError, match=r"2 of 2 tasks .* within 0.05 s; they continue"):
            list(as_completed(futures, timeout=0.05))
    finally:
        gate.set()
    assert len(list(as_completed(futures, timeout=BOUND))) == 2


def test_a_future_that_calls_nobody_back_is_seen_to_be_done() -> None:
    executor = LocalExecutor(threads=1)
    (future,) = [executor.submit(int, ("1",), {})]
    future.result(timeout=BOUND)
    # As of a client that was closed meanwhile.
    future.add_done_callback = lambda _: None  # type: ignore[method-assign, assignment]
    assert list(as_completed([future], timeout=BOUND)) == [future]


def test_engines_that_do_not_tell_are_waited_for_in_order() -> None:
    executor = LocalExecutor(threads=2)
    futures = [QuietFuture(executor) for _ in range(3)]
    for future in futures:
        executor.submit(future.set_result, (1,), {})
    assert list(as_completed(futures)) == futures


def test_nothing_to_wait_for() -> None:
    assert list(as_completed([])) == []


def test_no_futures_and_no_event_loops() -> None:
    with pytest.raises(InvalidArgumentError):
        as_completed([42])
    parts, _, executor = fake_split([[0]], [["A"]])
    futures = parts.map(lengths)
    executor.may_block = False
    for future in futures:
        future.executor = executor
    with pytest.raises(InvalidArgumentError, match="to_thread"):
        as_completed(futures)


def shown_by(run: Callable[[io.StringIO], Any]) -> str:
    stream = io.StringIO()
    run(stream)
    return stream.getvalue()


def test_bar_counts_tasks_to_the_end() -> None:
    pytest.importorskip("tqdm")
    parts = split([np.zeros(3)] * 8, partitions_per_location=4)
    futures = parts.map(lengths)
    shown = shown_by(
        lambda stream: progress(futures, timeout=BOUND, desc="lengths", file=stream, mininterval=0)
    )
    assert "lengths: 100%" in shown
    assert "4/4" in shown
    assert gather(futures) == [6, 6, 6, 6]


def test_bar_gives_the_futures_back_and_leaves_errors_in_them() -> None:
    pytest.importorskip("tqdm")
    futures = split([np.zeros(3)] * 2, partitions_per_location=2).map(lambda part: 1 // 0)
    assert progress(iter(futures), disable=True, timeout=BOUND) == futures
    with pytest.raises(ZeroDivisionError):
        gather(futures)


def test_without_tqdm_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with pytest.raises(PackageMissingError, match=r"pip install 'pyspliter\[progress\]'"):
        progress([])
    assert issubclass(PackageMissingError, ImportError)


@pytest.mark.backend("dask")
def test_dask_futures(client: Any) -> None:
    import dask.array as da

    parts = split(da.ones(100, chunks=5).persist())
    futures = parts.map(lengths)
    came = list(as_completed(futures, timeout=BOUND))
    assert sorted(future.key for future in came) == sorted(future.key for future in futures)
    assert sum(gather(futures)) == 100
    failing = parts[0].submit(lambda part: 1 // 0)
    assert list(as_completed([failing], timeout=BOUND)) == [failing]
    assert failing.status == "error"


@pytest.mark.backend("dask")
def test_dask_keys_name_the_user_s_function(client: Any) -> None:
    import dask.array as da
    from dask.utils import key_split

    from spliter import task

    @task
    def compute_partition(part: Any) -> int:
        return lengths(part)

    with split(da.ones(100, chunks=5).persist()) as parts:
        futures = [compute_partition(part) for part in parts]
        assert {key_split(future.key) for future in futures} == {"compute_partition"}
        gather(futures)  # by now the scheduler has heard of them, and it still holds them
        groups = client.run_on_scheduler(lambda dask_scheduler: set(dask_scheduler.task_prefixes))
        assert "compute_partition" in groups


ON_A_TERMINAL = """
import io
import numpy as np
from spliter import progress, split
from tqdm.auto import tqdm
print(tqdm.__module__)
progress(split([np.zeros(3)] * 4).map(len))
"""


def test_bar_on_a_terminal_goes_to_standard_error(run_python: RunPython) -> None:
    pytest.importorskip("tqdm")
    done = run_python("-c", ON_A_TERMINAL)
    assert done.returncode == 0, done.stderr
    assert "100%" in done.stderr


IN_A_KERNEL = """
import sys
import types

import numpy as np

# What tqdm goes by (of later versions, the second); and no ipywidgets to make a widget.
shell = types.SimpleNamespace(config={"IPKernelApp": {}})
sys.modules["IPython"] = types.SimpleNamespace(get_ipython=lambda: shell)
sys.modules["ipykernel.zmqshell"] = types.ModuleType("ipykernel.zmqshell")
sys.modules["ipywidgets"] = None

from spliter import progress, split

progress(split([np.zeros(3)] * 4).map(len))
assert "tqdm.notebook" in sys.modules
"""


def test_bar_in_a_notebook_without_widgets_is_text_and_no_warning(run_python: RunPython) -> None:
    pytest.importorskip("tqdm")
    done = run_python("-c", IN_A_KERNEL)
    assert done.returncode == 0, done.stderr
    assert "100%" in done.stderr
    assert "Warning" not in done.stderr
