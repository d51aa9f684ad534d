"""Conformance tests: partitions cut by schedules are like others, and teams of threads run them."""

from __future__ import annotations

import operator
from collections import Counter
from typing import Any

import numpy as np
import pytest

from spliter import InvalidArgumentError, Schedule, split
from spliter._planning.schedule import ALIASES, FORMULAS
from spliter._running.team import Queues
from spliter.testing import _programs
from spliter.testing._encoding import index_encoded_block, index_encoded_blocks
from spliter.testing._hooks import BackendHooks, whole

LENGTHS = (3, 1, 0, 2, 4, 1, 1, 5, 2, 2, 1, 3, 2, 1, 1, 2)
ITEMS = whole(LENGTHS)


class ScheduleChecks(BackendHooks):
    """Every schedule covers the collection; nothing moves, and results are as without one."""

    @pytest.mark.parametrize("kind", [*FORMULAS, *ALIASES])
    def test_schedules_cover_the_collection(self, kind: str) -> None:
        parts = split(self.encoded(LENGTHS), schedule=kind)
        found = self.collect(parts.map(_programs.contents))
        for partition, contents in zip(parts, found, strict=True):
            indexes = [index for index, _ in contents]
            assert indexes == sorted(partition.get_indexes())
            for index, block in contents:
                np.testing.assert_array_equal(block, index_encoded_block(index, (LENGTHS,)))
        every = Counter(index for contents in found for index, _ in contents)
        assert every == Counter((at,) for at in range(len(LENGTHS)))
        assert len(parts) >= len(parts.locations)
        assert parts.moved.blocks == 0

    def test_largest_partitions_come_first(self) -> None:
        parts = split(self.encoded([2] * 24), schedule="GSS")
        for location in parts.locations:
            sizes = [len(part) for part in parts if part.location == location]
            assert sizes == sorted(sizes, reverse=True)

    def test_order_of_blocks(self) -> None:
        collection = self.encoded([1] * 16, [0] * 16)
        runs = split(collection, schedule=Schedule("MSTATIC", min_blocks=4, order="contiguous"))
        spread = split(collection, schedule=Schedule("MSTATIC", min_blocks=4, order="strided"))
        assert [np.ptp(part.get_item_indexes()) for part in runs] == [3] * 4
        assert all(np.ptp(part.get_item_indexes()) > 3 for part in spread)

    def test_map_blocks_of_scheduled_partitions(self) -> None:
        parts = split(self.encoded(LENGTHS), schedule="FAC2")
        squares = parts.map_blocks(_programs.power, 2, dtype=np.int64)
        np.testing.assert_array_equal(self.values_of(squares), ITEMS**2)

    def test_collection_of_what_tasks_of_a_schedule_return(self) -> None:
        with split(self.encoded(LENGTHS), schedule="TSS", materialize=True) as parts:
            results = [(part, part.submit(_programs.cut_twice)) for part in parts]
            negative = parts.assemble(results, dtype=np.int64, output=1)
        np.testing.assert_array_equal(self.values_of(negative), -ITEMS)

    def test_aligned_collections_with_a_schedule(self) -> None:
        weights = self.encoded(LENGTHS)
        parts = split(self.encoded(LENGTHS), weights, schedule="FISS")
        assert sum(self.collect(parts.map(_programs.weigh))) == int((ITEMS**2).sum())

    @pytest.mark.parametrize("queues", ["central", "core", "group"])
    def test_map_reduce_sees_every_item_once(self, queues: Queues) -> None:
        parts = split(self.encoded(LENGTHS), schedule="SS")
        future = parts.map_reduce(_programs.collect_items, _programs.unite, queues=queues)
        assert self.collect([future]) == [frozenset(ITEMS.tolist())]

    def test_map_reduce_passes_arguments_and_futures(self) -> None:
        parts = split(self.encoded(LENGTHS), schedule="FAC2")
        one = parts[0].submit(len)
        future = parts.map_reduce(_programs.total_plus, operator.add, one)
        (count,) = self.collect([one])
        assert self.collect([future]) == [int(ITEMS.sum()) + len(parts) * count]

    def test_map_reduce_combines_in_order_whatever_the_team(self) -> None:
        parts = split(self.encoded(LENGTHS), schedule="GSS")
        alone = parts.map_reduce(_programs.blocks_of, operator.add, threads=1)
        (expected,) = self.collect([alone])
        for future in [parts.map_reduce(_programs.blocks_of, operator.add) for _ in range(3)]:
            (found,) = self.collect([future])
            np.testing.assert_array_equal(np.concatenate(found), np.concatenate(expected))

    def test_error_in_map_reduce_arrives_as_it_was_raised(self) -> None:
        parts = split(self.encoded(LENGTHS), schedule="SS")
        future = parts.map_reduce(_programs.fail, operator.add, ValueError, "bad block")
        with pytest.raises(ValueError, match="bad block"):
            self.collect([future])
        assert sum(self.collect(parts.map(_programs.consume))) == len(LENGTHS)

    def test_error_of_combine_arrives_as_it_was_raised(self) -> None:
        collection = self.encoded(LENGTHS)
        futures = [split(collection, schedule="SS").map_reduce(_programs.consume, _programs.refuse)]
        if self.n_locations > 1:  # raised by the task that combines the results of locations
            one_each = split(collection, partitions_per_location=1)
            futures.append(one_each.map_reduce(_programs.consume, _programs.refuse))
        for future in futures:
            with pytest.raises(OverflowError, match=r"cannot combine \d+ and \d+"):
                self.collect([future])
        assert sum(self.collect(split(collection).map(_programs.consume))) == len(LENGTHS)

    def test_combine_must_be_a_function(self) -> None:
        parts: Any = split(self.encoded(LENGTHS), schedule="FAC2")
        with pytest.raises(InvalidArgumentError, match="combine, the second argument"):
            parts.map_reduce(_programs.total, None)
        with pytest.raises(TypeError, match="'combine'"):
            parts.map_reduce(_programs.total)

    def test_auto_cuts_again_by_what_the_blocks_took(self) -> None:
        cores = split(self.encoded([1] * self.n_locations))._plan.capacities.values()
        lengths = [1] * (8 * sum(cores))
        parts = split(self.encoded(lengths), schedule="AUTO")
        assert "FAC2 now" in repr(parts)
        sizes = []
        for _ in range(10):  # measured times decide, and on a busy machine not at once
            found = self.collect(parts.map(_programs.rest_unevenly))
            sizes.append(len(found))
            assert sorted(item for items in found for item in items) == whole(lengths).tolist()
            if sizes[-1] < sizes[0]:
                break
        # One partition per core: without the time that each of more partitions takes.
        assert "STATIC by weights now" in repr(parts)
        assert sizes[0] > sizes[-1] == len(parts) == sum(cores)
        assert parts.moved.blocks == 0

    def test_map_reduce_of_materialized_partitions(self) -> None:
        with split(self.encoded(LENGTHS), schedule="MSTATIC", materialize=True) as parts:
            for _ in range(2):
                future = parts.map_reduce(_programs.total, operator.add)
                assert self.collect([future]) == [int(ITEMS.sum())]

    def test_blocks_of_several_locations_are_shared(self) -> None:
        collection = self.encoded(LENGTHS)
        for wrong in (
            {"schedule": "FAC2"},
            {"schedule": None},
            {"schedule": "FAC2", "materialize": True},
        ):
            with pytest.raises(InvalidArgumentError, match="steal"):
                split(collection, steal=True, **wrong)
        assert sum(self.collect(split(collection).map(_programs.total))) == int(ITEMS.sum())
        collection = self.distribute_shared(index_encoded_blocks([LENGTHS]))
        if collection is None:  # the engine has each block at one location
            return
        with split(collection, schedule="FAC2", steal=True) as parts:
            assert "steal" in repr(parts)
            before = self.incoming_transfers()
            found = self.collect(parts.map(_programs.contents))
            assert self.incoming_transfers() == before
            every = Counter(index for contents in found for index, _ in contents)
            assert every == Counter((at,) for at in range(len(LENGTHS)))
            assert all(set(part.holders) >= {part.location} for part in parts)
            where = self.where_it_runs()
            if where is not None:
                ran = self.collect(parts.map(where))
                assert all(at in part.holders for at, part in zip(ran, parts, strict=True))
            future = parts.map_reduce(_programs.total, operator.add)
            assert self.collect([future]) == [int(ITEMS.sum())]
            assert parts.moved.blocks == 0

    @pytest.mark.parametrize("in_team", [False, True])
    def test_metrics_of_a_pass(self, in_team: bool) -> None:
        parts = split(self.encoded(LENGTHS), schedule="FAC2")
        if in_team:
            self.collect([parts.map_reduce(_programs.consume, operator.add)])
        else:
            self.collect(parts.map(_programs.consume))
        found = parts.metrics()
        assert [one.location for one in found] == [part.location for part in parts]
        assert [one.blocks for one in found] == [len(part) for part in parts]
        assert set(found.idle_seconds) == set(parts.locations)
        assert all(one.seconds >= one.waiting_seconds > 0 for one in found)

    @pytest.mark.parametrize(
        "wrong", [{"threads": 0}, {"threads": True}, {"threads": 10_000}, {"queues": "both"}]
    )
    def test_teams_that_cannot_be(self, wrong: dict[str, Any]) -> None:
        parts = split(self.encoded(LENGTHS))
        with pytest.raises(InvalidArgumentError):
            parts.map_reduce(_programs.total, operator.add, **wrong)
