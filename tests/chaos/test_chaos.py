"""The short form of the chaos suite: a few seeds on each engine; the long one is `spliter chaos`.

Which faults hit what differs from machine to machine; that every run keeps its promises does not.
"""

from __future__ import annotations

import pytest

from spliter_experiments.chaos.campaign import run_seeds
from spliter_experiments.chaos.cases import APPS, GROUP, draw_case
from spliter_experiments.chaos.cli import told_failure
from spliter_experiments.chaos.outcomes import Outcome

NOT_HERE = {"cut-client", "cancel-tasks"}
"""Ends in what Dask itself does when its client connects again, which is not always the same."""


def without(kinds: set[str], backend: str, seeds: range, most: int) -> list[int]:
    drawn = [draw_case(backend, seed) for seed in seeds]
    return [it.seed for it in drawn if not kinds & {one.kind for one in it.faults}][:most]


DASK_SEEDS = [
    *without(NOT_HERE, "dask", range(GROUP), 6),  # with nannies
    *without(NOT_HERE, "dask", range(GROUP, 2 * GROUP), 6),  # and without
]
DATACLAY_SEEDS = list(range(6))


def check(backend: str, seeds: list[int]) -> None:
    records = list(run_seeds(backend, seeds))
    broken = [told_failure(record) for record in records if not record.is_good]
    assert not broken, "\n\n".join(broken)
    assert {record.case["app"] for record in records} == set(APPS)
    # The positive control: faults were done, and most runs came through them.
    assert any(one.done for record in records for one in record.struck)
    assert any(record.outcome is Outcome.RIGHT for record in records)


@pytest.mark.backend("dask")
def test_dask() -> None:
    check("dask", DASK_SEEDS)


@pytest.mark.backend("dataclay")
def test_dataclay() -> None:
    check("dataclay", DATACLAY_SEEDS)
