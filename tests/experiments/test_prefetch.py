"""Every way to read blocks while others are worked on gives the same answer, by its own means."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from distributed import Client

from spliter_experiments.compare.data.datasets import InputChoice
from spliter_experiments.compare.engines.dask_engine import ENGINE
from spliter_experiments.compare.floor import Floor
from spliter_experiments.compare.registry import ways_of
from spliter_experiments.compare.workloads.dask import DaskSite
from spliter_experiments.compare.workloads.prefetch import Loop, Prefetch
from spliter_experiments.harness.errors import OptionError
from tests.experiments.staging import answer, staged_on_dask, tasks_of

WAYS = ways_of(ENGINE, Prefetch)

pytestmark = pytest.mark.backend("dask")

NBLOCKS = 11
ROWS = 5 * NBLOCKS
CHOICE = InputChoice(None, None, rows=ROWS, dims=2, seed=3)

APP = Prefetch(latency=1.0, ms=0.02, depth=3)


@pytest.fixture(scope="module")
def posed(
    client_of_two_threads: Client, processes: dict[str, Floor]
) -> Iterator[tuple[DaskSite, Loop]]:
    with (
        APP.open(CHOICE) as dataset,
        staged_on_dask(client_of_two_threads, dataset, NBLOCKS, **processes) as site,
    ):
        yield site, APP.pose(site)


@pytest.mark.parametrize("way", Prefetch.ways)
def test_answers_are_those_of_all_blocks(way: str, posed: tuple[DaskSite, Loop]) -> None:
    site, loop = posed
    found = answer(APP, WAYS, way, site, loop)
    assert APP.same(found, ROWS)
    assert not APP.same(found, ROWS + 1)


def test_number_of_tasks(posed: tuple[DaskSite, Loop]) -> None:
    site, loop = posed
    for way in ("window", "slices"):
        assert tasks_of(WAYS, way, site, loop) == 1
    assert tasks_of(WAYS, "spliter", site, loop) <= 2  # threads of the worker
    assert tasks_of(WAYS, "dask", site, loop) >= NBLOCKS


@pytest.mark.parametrize("read", [Loop.read_in_window, Loop.read_slices])
def test_blocks_by_hand_are_the_chunks(read: Any, posed: tuple[DaskSite, Loop]) -> None:
    site, loop = posed
    blocks = list(read(loop))
    assert [len(block) for block in blocks] == [5] * NBLOCKS
    np.testing.assert_array_equal(np.concatenate(blocks), site.dataset.points.read(0, ROWS))


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"latency": -1.0}, "--latency must be 0 or more, got -1.0"),
        ({"latency": float("nan")}, "--latency must be 0 or more, got nan"),
        ({"ms": 0.0}, "--ms must be positive, got 0.0"),
        ({"depth": 0}, "--depth must be at least 1, got 0"),
    ],
)
def test_wrong_settings(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        Prefetch(**settings)


def test_an_input_is_refused() -> None:
    choice = InputChoice("points.npy", None, rows=ROWS, dims=1, seed=3)
    with (
        pytest.raises(OptionError, match="--input does not go with prefetch"),
        Prefetch().open(choice),
    ):
        pass
