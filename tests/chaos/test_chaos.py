"""A few chaos runs on each engine; ``python -m tests.chaos`` makes more.

Which faults hit what differs from machine to machine; that every run keeps its promises does not.
"""

from __future__ import annotations

import pytest

from tests.chaos.cases import APPS, GROUP, draw_case
from tests.chaos.runner import Outcome, run_seeds

NOT_HERE = {"cut-client", "cancel-tasks"}
"""End in what Dask itself does when its client connects again, which is not always the same."""


def first_six(seeds: range) -> list[int]:
    """Return the first six seeds that draw none of these faults."""
    drawn = [draw_case("dask", seed) for seed in seeds]
    return [it.seed for it in drawn if not NOT_HERE & {one.kind for one in it.faults}][:6]


def check(backend: str, seeds: list[int]) -> None:
    runs = list(run_seeds(backend, seeds))
    broken = [str(run) for run in runs if not run.is_good]
    assert not broken, "\n\n".join(broken)
    assert {run.case.app for run in runs} == set(APPS)
    # The positive control: faults were injected, and some runs came through them.
    assert any(one.done for run in runs for one in run.injected)
    assert any(run.outcome is Outcome.RIGHT for run in runs)


@pytest.mark.backend("dask")
def test_dask() -> None:
    with_nannies, without = range(GROUP), range(GROUP, 2 * GROUP)
    check("dask", [*first_six(with_nannies), *first_six(without)])


@pytest.mark.backend("dataclay")
def test_dataclay() -> None:
    check("dataclay", list(range(6)))
