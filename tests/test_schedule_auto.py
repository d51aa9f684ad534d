"""``schedule="AUTO"``: when it cuts anew, and by what."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from spliter import InvalidArgumentError, Partition, Schedule, Split, gather, split
from spliter._planning.passes import Pass
from spliter.metrics import RECORDS

pytestmark = pytest.mark.usefixtures("two_threads")

COSTS = np.array([10.0] * 12 + [1.0] * 12)


@pytest.fixture
def parts() -> Iterator[Split]:
    with split([np.full(2, at) for at in range(24)], schedule="AUTO") as found:
        yield found


def measure(parts: Split, costs: Any, span: float) -> None:
    """Record a pass in which the blocks cost so much, and which took so long."""
    RECORDS.keep(
        Pass(
            part.token,
            part.indexes.positions,
            part.nbytes,
            thread=(1, 1),
            begun=0.0,
            duration=span,
            cpu=0.0,
            seconds=costs[part.indexes.positions].astype(np.float32),
            waiting=0.0,
        )
        for part in parts[:]
    )


def loads(parts: Split) -> list[float]:
    return sorted(float(COSTS[part.indexes.positions].sum()) for part in parts[:])


def test_the_first_pass_is_factoring(parts: Split) -> None:
    assert [len(part) for part in parts] == Schedule("FAC2").sizes(24, 2)


def test_later_passes_are_cut_by_measured_seconds(parts: Split) -> None:
    list(parts)
    measure(parts, COSTS, span=100.0)
    assert len(list(parts)) == 2
    assert max(loads(parts)) <= 66 + 5  # half of the cost, and half of a block
    assert "STATIC" in repr(parts)


def test_taking_rows_is_no_pass(parts: Split) -> None:
    list(parts)
    measure(parts, COSTS, span=100.0)
    parts.take([0])
    assert "FAC2 now" in repr(parts)
    list(parts)
    assert "STATIC" in repr(parts)


def test_a_cut_that_promises_too_little_is_not_made(parts: Split) -> None:
    before = list(parts)
    measure(parts, COSTS, span=68.0)
    assert list(parts) == before


def test_a_pass_of_which_a_part_is_unknown_changes_nothing(parts: Split) -> None:
    before = list(parts)
    measure(parts, COSTS, span=100.0)
    RECORDS.keep(RECORDS.take(before[0].token)[1:])
    assert list(parts) == before
    measure(parts, COSTS, span=100.0)  # the next pass is whole
    assert len(list(parts)) == 2


def test_checked_ever_more_rarely(parts: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []
    checks: list[int] = []
    collect: Callable[[], list[Pass]] = parts._plan.passes

    def count() -> list[Pass]:
        checks.append(runs[-1])
        return collect()

    monkeypatch.setattr(parts._plan, "passes", count)
    for run in range(20):
        runs.append(run)
        list(parts)
        measure(parts, COSTS, span=1.0)
    assert checks == [1, 2, 4, 8, 16]


def test_measured_passes_of_real_tasks() -> None:
    def work(part: Partition) -> list[int]:
        found = []
        for block in part:
            time.sleep(0.02 * (int(block[0]) < 6))
            found.extend(block.tolist())
        return found

    blocks = [np.full(2, at) for at in range(24)]
    schedule = Schedule("AUTO", weights=[1.0] * 24, order="contiguous")
    parts = split(blocks, schedule=schedule)
    assert [len(part) for part in parts] == [12, 12]
    for _ in range(3):
        found = np.concatenate(gather(parts.map(work)))
        assert sorted(found.tolist()) == np.repeat(range(24), 2).tolist()
    # One core had all six costly blocks; how many go to the other depends on what else runs.
    costly = [sum(at < 6 for (at,) in part.get_indexes()) for part in parts]
    assert max(costly) < 6


def test_map_reduce(parts: Split) -> None:
    for _ in range(3):
        found = parts.map_reduce(lambda part: sum(b.sum() for b in part), operator.add).result()
        assert found == 2 * sum(range(24))
        measure(parts, COSTS, span=100.0)


def test_says_that_it_is_not_reproducible(parts: Split) -> None:
    assert "schedule AUTO (FAC2 now; not reproducible)" in repr(parts)


@pytest.mark.parametrize("materialize", [True, "auto"])
def test_not_with_materialize(materialize: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="AUTO"):
        split([np.ones(2)], schedule="AUTO", materialize=materialize)
