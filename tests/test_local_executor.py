"""The local backend: how long blocks are kept, and the threads that tasks run on."""

from __future__ import annotations

import gc
import multiprocessing
import operator
import os
import pickle
import threading
import weakref
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from spliter import (
    InvalidArgumentError,
    PartitionNotLocalError,
    Split,
    SplitClosedError,
    reduce,
    split,
)
from spliter._plan import Plan
from spliter._planning.options import SplitOptions
from spliter_backends.local import LocalExecutor, LocalLocator

WAIT = 30


def unlike(first: Any, second: Any) -> bool:
    return first is not second


# Keeping blocks, and letting go


class Watched(list[int]):
    """A list whose end can be noticed."""


def test_closing_lets_go_of_the_blocks() -> None:
    block = Watched([1])
    gone = weakref.ref(block)
    parts = split([block])
    partition = parts[0]
    del block
    assert gone() is not None
    parts.close()
    gc.collect()
    assert gone() is None
    with pytest.raises(SplitClosedError):
        list(partition)


def test_tasks_submitted_before_closing_still_have_their_blocks() -> None:
    executor = LocalExecutor(threads=1)
    locator = LocalLocator(executor)
    go = threading.Event()
    executor.submit(go.wait, (WAIT,), {})
    with Split(Plan(locator.open([[[1, 2], [3]]]), executor, SplitOptions(1))) as parts:
        (future,) = parts.map(list)
    go.set()
    assert future.result(WAIT) == [[1, 2], [3]]


def test_a_pickled_partition_does_not_keep_the_blocks() -> None:
    block = Watched([1])
    gone = weakref.ref(block)
    sent = pickle.dumps(split([block])[0])
    del block
    gc.collect()
    assert gone() is None
    with pytest.raises(PartitionNotLocalError, match="keep a reference to the Split"):
        list(pickle.loads(sent))


def test_a_partition_unpickled_in_its_process_finds_its_blocks() -> None:
    blocks = [np.ones(1), np.ones(2)]
    parts = split(blocks, partitions_per_location=1)
    again = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(parts[0]))))
    assert not any(map(unlike, again, blocks))
    parts.close()
    with pytest.raises(SplitClosedError):
        list(again)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_has_the_blocks_and_threads_of_its_own() -> None:
    parts = split([[1, 2], [3]], partitions_per_location=1)
    assert parts.map(list)[0].result(WAIT) == [[1, 2], [3]]  # this process has threads now
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    child = context.Process(target=lambda: send.send(parts.map(list)[0].result(WAIT)))
    child.start()
    assert receive.poll(WAIT)
    assert receive.recv() == [[1, 2], [3]]
    child.join(WAIT)


# Threads


@pytest.mark.parametrize("threads", [0, -1])
def test_less_than_one_thread_is_refused(threads: int) -> None:
    with pytest.raises(InvalidArgumentError, match="threads"):
        LocalExecutor(threads)


def test_as_many_tasks_run_at_once_as_there_are_threads() -> None:
    executor = LocalExecutor(threads=3)
    barrier = threading.Barrier(3)
    futures = [executor.submit(barrier.wait, (WAIT,), {}) for _ in range(3)]
    assert sorted(future.result(WAIT) for future in futures) == [0, 1, 2]


def test_waiting_tasks_take_no_thread() -> None:
    executor = LocalExecutor(threads=1)
    mine: Future[int] = Future()
    waiting = [executor.submit(operator.add, (mine, number), {}) for number in range(10)]
    assert executor.submit(int, (), {}).result(WAIT) == 0
    assert not any(future.done() for future in waiting)
    mine.set_result(100)
    assert [future.result(WAIT) for future in waiting] == list(range(100, 110))


def test_futures_in_containers_arrive_as_results() -> None:
    executor = LocalExecutor(threads=1)
    one, two = (executor.submit(int, (number,), {}) for number in (1, 2))
    given = {"a": one, "b": 5}, [two, [one]], (one, two), one
    found = executor.submit(lambda *args, **kwargs: (args, kwargs), given, {"named": two})
    (mapping, listed, pair, value), named = found.result(WAIT)
    assert (mapping, pair, value, named) == ({"a": 1, "b": 5}, (1, 2), 1, {"named": 2})
    assert listed == [2, [one]], "one level deep"


def test_futures_of_other_pools_are_waited_for() -> None:
    executor = LocalExecutor(threads=1)
    with ThreadPoolExecutor(1) as other:
        futures = [other.submit(int, number) for number in range(3)]
        assert executor.submit(sum, (futures,), {}).result(WAIT) == 3
        assert reduce(operator.add, futures).result(WAIT) == 3
        assert executor.location_of(futures[0]) is None


def test_long_chains_need_no_stack() -> None:
    executor = LocalExecutor(threads=1)
    go = threading.Event()
    future = executor.submit(go.wait, (WAIT,), {})
    for _ in range(5000):
        future = executor.submit(operator.add, (future, 1), {})
    go.set()
    assert future.result(WAIT) == 5001


def test_a_task_may_submit_tasks_and_wait_for_them_on_a_full_pool() -> None:
    executor = LocalExecutor(threads=1)

    def nested(depth: int) -> int:
        if not depth:
            return 0
        result: int = executor.submit(nested, (depth - 1,), {}).result(WAIT)
        return 1 + result

    assert executor.submit(nested, (5,), {}).result(WAIT) == 5


def test_an_error_reaches_those_that_depend_on_the_task() -> None:
    executor = LocalExecutor(threads=1)
    failed = executor.submit(operator.truediv, (1, 0), {})
    dependent = executor.submit(operator.add, (failed, 1), {})
    with pytest.raises(ZeroDivisionError):
        dependent.result(WAIT)


@pytest.mark.parametrize("given", [lambda future: future, lambda future: [future, future]])
def test_an_error_that_ends_iterations_reaches_them_too(given: Any) -> None:
    executor = LocalExecutor(threads=2)
    failed = executor.submit(lambda: next(iter(())), (), {})
    after = executor.submit(lambda *values: values, (1, given(failed), 2), {})
    with pytest.raises(StopIteration):
        after.result(timeout=WAIT)


def test_futures_keep_no_arguments_of_tasks_that_have_run() -> None:
    executor, go, given = LocalExecutor(threads=1), threading.Event(), np.ones(3)
    alive = weakref.ref(given)
    first = executor.submit(go.wait, (WAIT,), {})
    second = executor.submit(lambda array, _: array.sum(), (given, first), {})
    del given
    go.set()
    assert second.result(WAIT) == 3
    assert executor.submit(int, (), {}).result(WAIT) == 0  # the thread has left the task before
    assert alive() is None
    assert first.result(WAIT)


def test_a_task_that_has_not_started_can_be_cancelled() -> None:
    executor = LocalExecutor(threads=1)
    go = threading.Event()
    blocker = executor.submit(go.wait, (WAIT,), {})
    ran: list[int] = []
    future = executor.submit(ran.append, (1,), {})
    dependent = executor.submit(operator.is_, (future, None), {})
    assert future.cancel()
    go.set()
    assert blocker.result(WAIT)
    with pytest.raises(CancelledError):
        dependent.result(WAIT)
    assert executor.submit(int, (), {}).result(WAIT) == 0
    assert ran == []


def test_results_left_when_the_program_ends_do_not_hang_it(run_python: Any) -> None:
    program = """
import time
from spliter_backends.local import LocalExecutor
executor = LocalExecutor(threads=1)
first = executor.submit(time.sleep, (0.2,), {})
for _ in range(3):
    first = executor.submit(lambda value: value, (first,), {})
"""
    done = run_python("-c", program, timeout=WAIT)
    assert done.returncode == 0, done.stderr
