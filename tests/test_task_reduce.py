"""``task`` and ``reduce``: what is submitted where, and in how many tasks."""

from __future__ import annotations

import operator
import string
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spliter import (
    InvalidArgumentError,
    Partition,
    SplitClosedError,
    reduce,
    split,
    task,
)
from tests.fake_engine import FakeExecutor, fake_split

VALUES = [[0, 1], [2], [], [3, 4, 5]]


@task
def total(partition: Any, plus: int = 0) -> int:
    """Add up."""
    return plus + sum(int(item) for block in partition for item in block)


def test_task_submits_itself_to_the_partition_location() -> None:
    parts, _, executor = fake_split(VALUES, "ABAB")
    futures = [total(partition, plus=1) for partition in parts]
    assert [future.result() for future in futures] == [2, 15]
    assert [(call.fn, call.location) for call in executor.calls] == [(total, "A"), (total, "B")]


def test_task_on_a_closed_split_is_refused_whichever_partition_it_is() -> None:
    blocks = [np.ones(2)]
    (still_open,), (closed,) = split(blocks), (other := split(blocks))
    other.close()

    @task
    def both(first: Partition, second: Partition) -> None:
        raise AssertionError("must not run")

    with pytest.raises(SplitClosedError):
        both(still_open, closed)


def finished(executor: FakeExecutor, where: str) -> list[Any]:
    """Submit a task per letter, at the location of that name (``-`` is nowhere)."""
    return [
        executor.submit(int, (number,), {}, location=None if name == "-" else name)  # type: ignore[arg-type]
        for number, name in enumerate(where)
    ]


def reduced(where: str, arity: int | None = None) -> tuple[int, list[tuple[Any, int]]]:
    """Reduce, and return the result and the tasks: location and number of inputs."""
    executor = FakeExecutor()
    futures = finished(executor, where)
    before = len(executor.calls)
    result = reduce(operator.add, futures, arity=arity).result(timeout=30)
    return result, [(call.location, len(call.args[1])) for call in executor.calls[before:]]


def test_reduce_combines_each_location_in_one_task_and_then_across() -> None:
    result, tasks = reduced("AAABBBAB")
    assert result == sum(range(8))
    assert tasks == [("A", 4), ("B", 4), (None, 2)]


def test_reduce_across_many_locations_is_a_tree() -> None:
    result, tasks = reduced(string.ascii_letters[:40])
    assert result == sum(range(40))
    assert tasks == [(None, 32), (None, 8), (None, 2)]


def test_reduce_with_arity_is_a_tree_everywhere() -> None:
    result, tasks = reduced("AAAAAB", arity=2)
    assert result == sum(range(6))
    assert tasks == [("A", 2), ("A", 2), ("A", 2), ("A", 2), (None, 2)]


@given(
    st.text("ABC-", min_size=1, max_size=30),
    st.none() | st.integers(2, 7),
)
def test_reduce_uses_every_result_once(where: str, arity: int | None) -> None:
    result, tasks = reduced(where, arity)
    assert result == sum(range(len(where)))
    # A task turns n results into one, so this many are gone in the end.
    assert sum(inputs - 1 for _, inputs in tasks) == len(where) - 1
    assert all(inputs >= 2 for _, inputs in tasks)
    assert all(inputs <= arity for _, inputs in tasks if arity)


def test_reduce_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="at least one future"):
        reduce(operator.add, [])


async def _coroutine(partition: Partition) -> None:
    """Not a task."""


def _generator(partition: Partition) -> Iterator[Any]:
    yield from partition


async def _asynchronous_generator(partition: Partition) -> AsyncIterator[int]:
    yield 1


class _Later:
    async def __call__(self, partition: Partition) -> None:
        """Not a task."""


@pytest.mark.parametrize(
    "fn", [_coroutine, _generator, _asynchronous_generator, _Later(), partial(_generator), 42]
)
def test_only_plain_functions_are_tasks(fn: Any) -> None:
    parts = split([np.ones(3)])
    with pytest.raises(InvalidArgumentError, match="function"):
        parts.map_reduce(fn, operator.add)
    with pytest.raises(InvalidArgumentError, match=r"combine.* must be a (plain )?function"):
        parts.map_reduce(len, fn)
    with pytest.raises(InvalidArgumentError, match="function"):
        task(fn)
    with pytest.raises(InvalidArgumentError, match="function"):
        parts[0].submit(fn)


# gather
