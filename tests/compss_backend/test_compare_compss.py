"""Comparisons on the stand-in's nodes: answers of plain processes, and the tasks promised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from spliter_experiments.compare.baseline import Baseline, start_baseline
from spliter_experiments.compare.data.sources import Floats, GeneratedPoints, cut_rows, no_points
from spliter_experiments.compare.engines.compss_engine import CompssEngine
from spliter_experiments.compare.engines.compss_launch import ENGINE
from spliter_experiments.compare.engines.engine import ClusterChoice, Placement
from spliter_experiments.harness.errors import ClusterError, InputError
from tests.compss_backend.conftest import NODES
from tests.experiments.call_ways import APPS, NBLOCKS, PAIRS, check_ways, few_ways, pose

pytestmark = [pytest.mark.thorough, pytest.mark.backend("compss"), pytest.mark.standin]

POINTS = GeneratedPoints(rows=80, dims=2, seed=5)

NOWHERE = ClusterChoice(None, workers=1, threads=1)


@pytest.fixture
def engine(runtime: Any) -> Iterator[Any]:
    with ENGINE.connect(NOWHERE) as connected:
        yield connected


def test_nothing_of_pairs_is_kept(engine: CompssEngine, runtime: Any) -> None:
    with pose(ENGINE, "knn-blocks", engine, {}) as posed:
        before = runtime.tracked()
        posed.answer("per-block")
        assert runtime.tracked() == before


@pytest.fixture(scope="module")
def processes() -> Iterator[dict[str, Baseline]]:
    with start_baseline(2) as floor, start_baseline(1, threads=2) as machine:
        yield {"floor": floor, "machine": machine}


PASSES = {"sum": 2, "histogram": 1, "kmeans": 4 + 1, "knn": 1}
"""How often each app goes over all blocks, where that is certain."""


@pytest.mark.parametrize("name", APPS)
def test_answers_and_tasks(name: str, engine: CompssEngine, processes: dict[str, Baseline]) -> None:
    with pose(ENGINE, name, engine, processes) as posed:
        wanted = posed.answer("per-block")
        for app, way in few_ways(ENGINE):
            if app == name and way != "per-block":
                assert posed.app.same(posed.answer(way), wanted), way
        per_block = posed.tasks("per-block")
        assert posed.tasks("spliter") < per_block
        if name == "knn-blocks":
            assert per_block == PAIRS
        else:
            assert per_block % NBLOCKS == 0
        if name in PASSES:
            assert per_block == PASSES[name] * NBLOCKS


def test_ways_there_are() -> None:
    check_ways(ENGINE)


def test_a_task_for_every_partition_and_one_or_two_for_the_sum(
    engine: CompssEngine, processes: dict[str, Baseline]
) -> None:
    with pose(ENGINE, "histogram", engine, processes) as posed:
        # Two partitions at each of three nodes, a sum at each, and one of all.
        assert posed.tasks("spliter") == 3 * 2 + 3 + 1


def test_cores_and_nodes(engine: CompssEngine) -> None:
    assert (engine.workers, engine.cores) == (3, 6)
    assert engine.is_on_this_machine()


def test_blocks_are_in_turn_at_the_nodes(engine: CompssEngine, runtime: Any) -> None:
    loading = engine.persisted(POINTS, cut_rows(80, 8), no_points(POINTS), Placement.EVEN)
    with loading as blocks:
        assert blocks.shape == (80, 2)
        assert blocks.chunks == ((10,) * 8, (2,))
        homes = [min(runtime.holders(block)) for block in blocks]
        assert homes[:6] == [*homes[:3], *homes[:3]]
        assert set(homes) == set(NODES)
        tracked = runtime.tracked()
    assert runtime.tracked() == tracked - 8, "deleted at the end"


def test_what_is_given_to_all_blocks_is_sent_once_and_forgotten(
    engine: CompssEngine, runtime: Any
) -> None:
    loading = engine.persisted(POINTS, cut_rows(80, 4), no_points(POINTS), Placement.EVEN)
    with loading as blocks:
        before = runtime.tracked()
        found = engine.call_blocks(blocks, lengths_and, blocks, [0, 20, 40, 60], word="all")
        assert found == [(20, 20, start, "all") for start in (0, 20, 40, 60)]
        assert runtime.tracked() == before


def lengths_and(left: Floats, right: Floats, start: int, word: str) -> tuple[int, int, int, str]:
    return len(left), len(right), start, word


class Unreadable(GeneratedPoints):
    """Points that the workers cannot read."""

    def read(self, start: int, stop: int) -> Floats:
        raise FileNotFoundError("no such file here")


def test_rows_that_cannot_be_read(engine: CompssEngine) -> None:
    points = Unreadable(rows=8, dims=1, seed=0)
    loading = engine.persisted(points, (4, 4), no_points(points), Placement.EVEN)
    with pytest.raises(InputError, match="no such file here"), loading:
        pass


def test_where_compss_puts_them(engine: CompssEngine) -> None:
    args = (POINTS, cut_rows(80, 4), no_points(POINTS), Placement.COMPSS)
    with engine.persisted(*args) as blocks:
        assert engine.call_blocks(blocks, len) == [20] * 4


@pytest.mark.usefixtures("nodes")
def test_outside_of_an_application() -> None:
    with pytest.raises(ClusterError, match="runcompss"), ENGINE.connect(NOWHERE):
        pass


def test_kernels_of_one_node_count(engine: CompssEngine) -> None:
    before = engine.meter().__enter__().reading()
    loading = engine.persisted(POINTS, (80,), no_points(POINTS), Placement.EVEN)
    with loading as blocks:
        engine.call_blocks(blocks, len)
    spent = engine.counter.reading().since(before)
    assert spent.tasks == 2, "one to make the block, one on it"
    assert spent.nbytes is None, "COMPSs does not tell"
    assert Counter(engine.capacities.values()) == {2: 3}
