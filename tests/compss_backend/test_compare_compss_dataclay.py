"""Comparisons of COMPSs over dataClay: the stand-in's nodes, and blocks in a real dataClay."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

pytest.importorskip("spliter_backends.dataclay", exc_type=ImportError)

from spliter import split
from spliter_backends.compss.executor import CompssExecutor
from spliter_experiments.cli import app
from spliter_experiments.compare.data.sources import GeneratedPoints, cut_rows, no_points
from spliter_experiments.compare.engines.compss_dataclay_engine import CompssDataClayEngine
from spliter_experiments.compare.engines.compss_launch import WITH_DATACLAY as ENGINE
from spliter_experiments.compare.engines.engine import ClusterChoice, Placement
from spliter_experiments.compare.registry import load_engine
from spliter_experiments.harness.errors import ClusterError
from spliter_experiments.harness.records import ResultsFolder
from tests.compss_backend.conftest import running, started_nodes
from tests.evaluation.scenes import SMALL, written
from tests.experiments.call_ways import APPS, PAIRS, check_ways, pose

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.backend("compss"),
    pytest.mark.backend("dataclay"),
    pytest.mark.standin,
    pytest.mark.timeout(200),
]

POINTS = GeneratedPoints(rows=80, dims=2, seed=5)
NOWHERE = ClusterChoice(None, workers=1, threads=1)


@pytest.fixture
def runtime() -> Iterator[Any]:
    """Nodes of their own: a node keeps its connection to the first dataClay that it reads from."""
    with started_nodes() as nodes, running(nodes) as started:
        yield started


@pytest.fixture
def engine(runtime: Any) -> Iterator[Any]:
    with ENGINE.connect(NOWHERE) as connected:
        yield connected


def test_ways_there_are() -> None:
    check_ways(ENGINE)
    assert load_engine("compss+dataclay") is ENGINE


def test_answers_and_tasks(engine: CompssDataClayEngine) -> None:
    assert (engine.workers, engine.cores) == (3, 6)
    assert set(engine.store.capacities.values()) == {2}, "a backend for each node, as wide"
    for name in APPS:
        with pose(ENGINE, name, engine, {}) as posed:
            wanted = posed.answer("per-block")
            assert posed.app.same(posed.answer("spliter"), wanted), name
            per_block, fewer = posed.tasks("per-block"), posed.tasks("spliter")
            assert fewer < per_block
            assert name != "histogram" or fewer == 3 * 2 + 3 + 1
            assert name != "knn-blocks" or per_block == PAIRS


def test_tasks_are_those_of_compss_and_blocks_those_of_dataclay(
    engine: CompssDataClayEngine, runtime: Any
) -> None:
    before = runtime.tracked()
    loading = engine.persisted(POINTS, cut_rows(80, 6), no_points(POINTS), Placement.CONTIGUOUS)
    with loading as blocks:
        assert blocks.shape == (80, 2)
        backends = list(engine.store.capacities)
        assert blocks.locations() == [one for one in backends for _ in range(2)]
        ran = len(runtime.ran)
        assert engine.call_blocks(blocks, len) == list(blocks.chunks[0])
        assert [name for name, *_ in runtime.ran[ran:]] == ["call_on_block"] * 6
        with split(blocks, backend=engine.split_backend) as parts:
            assert isinstance(parts[0].executor, CompssExecutor)
            assert set(parts.locations) == set(backends)
    assert blocks.locations() == [None] * 6, "deleted at the end"
    assert runtime.tracked() == before


@pytest.mark.usefixtures("runtime")
def test_several_machines_need_a_storage_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
    with (
        pytest.raises(ClusterError, match=r"several machines.*runcompss --storage_conf"),
        ENGINE.connect(NOWHERE),
    ):
        pass


KNN = (
    SMALL.partition("[[claims")[0]
    .replace('app = "histogram"', 'app = "knn"')
    .replace("bins = 3", "neighbors = 3")
    .replace("nodes = [1, 2]", "nodes = [3]")
    .replace("threads_per_worker = 1", "threads_per_worker = 2")
    .replace("repetitions", "queries_per_node = 20\nquery_blocks_per_node = 2\nrepetitions")
)
"""Neighbours of queries in 6 blocks among points in 24, on the stand-in's three nodes."""


@pytest.mark.usefixtures("runtime")
def test_experiment(tmp_path: Path) -> None:
    scenario, results = written(tmp_path, KNN), tmp_path / "out"
    words = ["experiment", "run", scenario, "--backend", "compss+dataclay", "--results", results]
    done = CliRunner().invoke(app, list(map(str, words)))
    assert done.exit_code == 0, done.output
    records = ResultsFolder(results).records()
    assert {one.engine for one in records} == {"compss+dataclay"}
    tasks = {one.configuration: one.tasks for one in records}
    assert tasks.pop("baseline") == 24 + 6 * (24 + 1)
    assert tasks.keys() == {"spliter"}
    assert "report.html" in CliRunner().invoke(app, ["experiment", "report", str(results)]).output


@pytest.mark.usefixtures("runtime")
def test_compare(tmp_path: Path) -> None:
    words = ["compare", "sum", "--backend", "compss+dataclay", "--rows", "600", "--dims", "2"]
    words += ["--blocks-per-core", "4", "--rounds", "1", "--ways", "spliter,per-block"]
    done = CliRunner().invoke(app, [*words, "--output", str(tmp_path / "compared")])
    assert done.exit_code == 0, done.output
    tasks = {one.way: one.tasks for one in ResultsFolder(tmp_path / "compared").records()}
    assert tasks == {"per-block": 24, "spliter": 3 * 2 + 3 + 1}
