"""Every way adds up all values, with the tasks that its description promises."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
from distributed import Client

from spliter_experiments.compare.baseline import Baseline
from spliter_experiments.compare.data.sources import Dataset, GeneratedPoints
from spliter_experiments.compare.engines.dask_engine import ENGINE
from spliter_experiments.compare.workloads.app import ways_of
from spliter_experiments.compare.workloads.dask import DaskSite
from spliter_experiments.compare.workloads.sums import Sum
from tests.experiments.staging import answer, staged_on_dask, tasks_of

WAYS = ways_of(ENGINE, Sum)

pytestmark = pytest.mark.backend("dask")

POINTS = GeneratedPoints(rows=1001, dims=3, seed=8)
NBLOCKS = 40
APP = Sum(passes=1)


@pytest.fixture(scope="module")
def site(client: Client, processes: dict[str, Baseline]) -> Iterator[DaskSite]:
    with staged_on_dask(client, Dataset(POINTS), NBLOCKS, **processes) as staged:
        yield staged


@pytest.mark.parametrize("way", Sum.ways)
def test_sums_are_those_of_all_values(way: str, site: DaskSite) -> None:
    wanted = math.fsum(POINTS.read(0, POINTS.rows).flat)
    found = answer(APP, WAYS, way, site, 1)
    assert found == pytest.approx(wanted, rel=1e-12)
    assert APP.same(found, wanted)
    assert not APP.same(found, wanted * (1 + 1e-6))


def test_names_of_ways_are_complete() -> None:
    assert Sum.ways == (*WAYS.run, "floor")


def test_number_of_tasks(site: DaskSite) -> None:
    # 40 blocks, then sums of 16: 3, then 1.
    assert tasks_of(WAYS, "per-block", site, 1) == NBLOCKS + 3 + 1
    assert tasks_of(WAYS, "per-block", site, 3) == 3 * (NBLOCKS + 3 + 1)


def test_blocks_are_split_once_for_all_passes(site: DaskSite) -> None:
    first = tasks_of(WAYS, "spliter", site, 1)
    second = tasks_of(WAYS, "spliter", site, 2) - first
    # Two partitions and their sum; the first time something more.
    assert second == 2 + 1
    assert tasks_of(WAYS, "spliter", site, 3) == first + 2 * second
