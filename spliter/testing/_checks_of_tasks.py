"""Conformance tests: ``task``, ``submit``, ``map``, ``reduce``, and errors of tasks."""

from __future__ import annotations

import operator
import threading
import traceback

import pytest

from spliter import (
    InvalidArgumentError,
    TaskFailedError,
    TaskNotSerializableError,
    gather,
    reduce,
    split,
)
from spliter.testing import _programs
from spliter.testing._hooks import LENGTHS, TOTAL, BackendHooks


class TaskChecks(BackendHooks):
    """Tasks run once per partition and return the engine's own futures."""

    def test_task_of_each_partition(self) -> None:
        futures = [_programs.total(partition) for partition in self.split_of(*LENGTHS)]
        assert sum(self.collect(futures)) == TOTAL

    def test_gather_in_the_order_of_the_futures(self) -> None:
        parts = self.split_of(*LENGTHS, partitions_per_location=2)
        items = gather(parts.map(_programs.collect_items))
        assert [set(found) for found in items] == [
            set(p.get_item_indexes().tolist()) for p in parts
        ]
        with pytest.raises(ValueError, match="after the first block"):
            gather(parts.map(_programs.fail, ValueError, "after the first block"))

    def test_task_with_further_arguments(self) -> None:
        parts = self.split_of(*LENGTHS)
        futures = [_programs.total_plus(partition, 5, times=2) for partition in parts]
        assert sum(self.collect(futures)) == 2 * TOTAL + 5 * len(parts)

    def test_task_with_the_partition_as_keyword(self) -> None:
        (partition,) = self.split_of(4)
        assert self.collect([_programs.total_plus(more=1, partition=partition)]) == [7]

    def test_task_inside_a_task_is_the_plain_function(self) -> None:
        (partition,) = self.split_of(4)
        assert self.collect([_programs.total_of_nested(partition)]) == [6]

    def test_task_without_a_partition_is_the_plain_function(self) -> None:
        assert _programs.unite.__name__ == "unite"
        assert _programs.total.__name__ == "total"
        assert _programs.total([]) == 0  # type: ignore[arg-type]

    def test_task_with_two_partitions_of_one_location(self) -> None:
        collection = self.encoded((2, 2), (0, 0))
        first, second = split(collection, partitions_per_location=2)
        assert first.location == second.location
        assert self.collect([_programs.total_of_two(first, second)]) == [6]

    def test_task_with_partitions_of_two_locations_is_refused(self) -> None:
        if self.n_locations < 2:
            pytest.skip("the engine has one location here")
        first, second = split(self.encoded((2, 2), (0, 1)))
        with pytest.raises(InvalidArgumentError, match="one location"):
            _programs.total_of_two(first, second)

    def test_submit_gives_the_partition_first(self) -> None:
        (partition,) = self.split_of(4)
        future = partition.submit(_programs.total_plus, 1, times=3)
        assert self.collect([future]) == [19]

    def test_map_gives_a_future_per_partition_in_order(self) -> None:
        parts = self.split_of(*LENGTHS, partitions_per_location=2)
        found = self.collect(parts.map(_programs.consume))
        assert found == [len(partition) for partition in parts]

    def test_futures_arrive_as_results(self) -> None:
        parts = self.split_of(*LENGTHS)
        futures = parts.map(_programs.total)
        chained = [
            _programs.total_plus(partition, future)
            for partition, future in zip(parts, reversed(futures), strict=True)
        ]
        assert sum(self.collect(chained)) == 2 * TOTAL
        named = [
            _programs.total_plus(partition, more=future)
            for partition, future in zip(parts, futures, strict=True)
        ]
        assert sum(self.collect(named)) == 2 * TOTAL

    @pytest.mark.parametrize("arity", [None, 2, 3])
    def test_reduce_combines_every_result_once(self, arity: int | None) -> None:
        parts = self.split_of(*LENGTHS * 3, partitions_per_location=5)
        future = reduce(_programs.unite, parts.map(_programs.collect_items), arity=arity)
        assert self.collect([future]) == [frozenset(range(3 * sum(LENGTHS)))]

    def test_reduce_of_one_future(self) -> None:
        (partition,) = self.split_of(4)
        assert self.collect([reduce(operator.add, [_programs.total(partition)])]) == [6]

    def test_reduced_futures_are_futures_like_others(self) -> None:
        parts = self.split_of(*LENGTHS)
        first = reduce(operator.add, parts.map(_programs.total))
        second = reduce(operator.add, [first, *parts.map(_programs.total)])
        added = parts[0].submit(_programs.total_plus, second, times=0)
        assert self.collect([second, added]) == [2 * TOTAL, 2 * TOTAL]

    def test_reduce_leaves_what_it_combined_as_it_was(self) -> None:
        futures = self.split_of(*LENGTHS).map(_programs.total)
        twice = [self.collect([reduce(operator.add, futures)]) for _ in range(2)]
        assert twice == [[TOTAL], [TOTAL]]
        assert sum(self.collect(futures)) == TOTAL

    @pytest.mark.parametrize("arity", [-1, 0, 1])
    def test_reduce_of_less_than_two_at_a_time_is_refused(self, arity: int) -> None:
        futures = self.split_of(1, 2).map(_programs.total)
        with pytest.raises(InvalidArgumentError, match="arity"):
            reduce(operator.add, futures, arity=arity)

    @pytest.mark.parametrize("kind", [ValueError, KeyError, IndexError])
    def test_error_of_a_task_arrives_as_it_was_raised(self, kind: type[Exception]) -> None:
        # KeyError and IndexError: engines also raise these for missing blocks.
        (partition,) = self.split_of(3)
        future = partition.submit(_programs.fail, kind, "by mistake")
        with pytest.raises(kind, match="by mistake") as raised:
            self.collect([future])
        assert type(raised.value) is kind
        frames = [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]
        assert "fail" in frames, "the traceback does not lead to the task's own line"

    def test_error_that_cannot_be_pickled_arrives_as_text(self) -> None:
        if not self.locations_are_elsewhere:
            pytest.skip("tasks are not sent anywhere")
        (partition,) = self.split_of(3)
        future = partition.submit(_programs.fail_with_a_lock)
        with pytest.raises(TaskFailedError, match=r"(?s)LockedError.*in fail_with_a_lock"):
            self.collect([future])

    def test_error_of_one_task_arrives_through_reduce(self) -> None:
        parts = self.split_of(*LENGTHS, partitions_per_location=2)
        futures = parts.map(_programs.total)
        failed = parts[0].submit(_programs.fail, ZeroDivisionError, "no result")
        with pytest.raises(ZeroDivisionError, match="no result"):
            self.collect([reduce(operator.add, [*futures, failed])])
        assert sum(self.collect(futures)) == TOTAL, "the others are not affected"

    def test_unpicklable_arguments_are_rejected(self) -> None:
        if not self.locations_are_elsewhere:
            pytest.skip("tasks are not sent anywhere")
        (partition,) = self.split_of(3)
        with pytest.raises(TaskNotSerializableError):
            partition.submit(_programs.total_plus, threading.Lock())
        lock = threading.Lock()
        with pytest.raises(TaskNotSerializableError):
            partition.submit(lambda _: lock.locked())
