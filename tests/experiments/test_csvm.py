"""Every way trains a classifier as good as scikit-learn's, with feedback and the tasks promised."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from distributed import Client
from sklearn.svm import SVC

from spliter_experiments.compare.baseline import Baseline
from spliter_experiments.compare.data.datasets import InputChoice
from spliter_experiments.compare.data.sources import Dataset
from spliter_experiments.compare.engines.dask_engine import ENGINE, blocks_of
from spliter_experiments.compare.engines.dask_meter import DaskIdle
from spliter_experiments.compare.workloads import csvm, dask
from spliter_experiments.compare.workloads.app import ways_of
from spliter_experiments.compare.workloads.csvm import CascadeSvm, Classifier, Run
from spliter_experiments.compare.workloads.csvm_cascade import MANY_PARTS, PAPER
from spliter_experiments.compare.workloads.dask import DaskSite
from tests.experiments import staging
from tests.experiments.staging import iris_file, phases, staged_on_dask

WAYS = ways_of(ENGINE, CascadeSvm)

pytestmark = pytest.mark.backend("dask")

NBLOCKS = 20
APP = CascadeSvm(label=None, iterations=5, tol=0.0)


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return APP.open(InputChoice(None, None, rows=600, dims=3, seed=4))


@pytest.fixture(scope="module")
def site(client: Client, dataset: Dataset, processes: dict[str, Baseline]) -> Iterator[DaskSite]:
    with staged_on_dask(client, dataset, NBLOCKS, **processes) as staged:
        yield staged


@pytest.fixture(scope="module")
def run(site: DaskSite) -> Run:
    return APP.pose(site)


@pytest.fixture(scope="module")
def rest(site: DaskSite) -> DaskIdle:
    return site.engine.idle_state([site.array, site.labels])


@pytest.fixture(autouse=True)
def put_back(rest: DaskIdle) -> Iterator[None]:
    """Start every test with the blocks where Dask put them, and nothing left of the others."""
    rest.wait()
    yield
    rest.wait()


def answer(way: str, site: DaskSite, run: Run) -> Classifier:
    found = staging.answer(APP, WAYS, way, site, run)
    assert isinstance(found, Classifier)
    return found


def limited(run: Run, iterations: int) -> Run:
    return replace(run, training=replace(run.training, iterations=iterations))


def expected(run: Run, dataset: Dataset) -> Classifier:
    assert dataset.labels is not None
    rows = dataset.points.rows
    model = SVC(gamma=run.training.svc.gamma)
    model.fit(dataset.points.read(0, rows), dataset.labels.read(0, rows))
    return Classifier(model, run)


def test_labels_are_where_the_points_are(site: DaskSite) -> None:
    points_blocks, label_blocks = blocks_of(site.array), blocks_of(site.labels)
    held = site.engine.client.who_has([*points_blocks, *label_blocks])
    for block, labels in zip(points_blocks, label_blocks, strict=True):
        assert held[block.key] == held[labels.key]


def test_a_fifth_is_held_out_and_gamma_is_that_of_all(
    site: DaskSite, run: Run, dataset: Dataset
) -> None:
    assert dataset.points.rows == 600
    assert run.points.shape == (150, 3)
    assert set(run.labels) == {0, 1}
    points = dataset.points.read(0, 600)
    assert run.training.svc.gamma == pytest.approx(1 / (3 * points.var()))


@pytest.mark.parametrize("way", CascadeSvm.ways)
def test_every_way_is_as_good_as_scikit_learn(
    way: str, site: DaskSite, run: Run, dataset: Dataset
) -> None:
    found, wanted = answer(way, site, run), expected(run, dataset)
    assert found.accuracy == pytest.approx(wanted.accuracy, abs=0.01)
    assert found.objective == pytest.approx(wanted.objective, rel=1e-3)
    assert 0.6 < wanted.accuracy < 1
    assert APP.same(found, wanted)


@pytest.mark.parametrize("way", ["per-block-paper", "rechunk-p2p", "rechunk-tasks", "floor"])
def test_what_is_fed_back_is_used(
    way: str, site: DaskSite, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With nothing but support vectors going up, the first solution lacks something.
    for module in (csvm, dask):
        monkeypatch.setattr(module, "FEW_PARTS", PAPER)
    first = answer(way, site, limited(run, 1))
    last = answer(way, site, run)
    assert last.objective > first.objective * (1 + 1e-6)


def tasks_of(way: str, site: DaskSite, run: Run) -> int:
    return staging.tasks_of(WAYS, way, site, run)


@pytest.mark.parametrize(
    ("way", "merges"),
    [
        # The sets of 20 blocks are merged 8 at a time: 3, and in the end 1.
        ("per-block", 3 + 1),
        # Two at a time: 10, 5, 3, 2, 1.
        ("per-block-paper", 10 + 5 + 3 + 2 + 1),
    ],
)
def test_number_of_tasks_per_block(way: str, merges: int, site: DaskSite, run: Run) -> None:
    assert tasks_of(way, site, limited(run, 1)) == NBLOCKS + merges


def test_spliter_has_fewer_tasks_than_blocks(site: DaskSite, run: Run) -> None:
    assert tasks_of("spliter", site, limited(run, 1)) < NBLOCKS


@pytest.mark.parametrize("way", ["rechunk-p2p", "rechunk-tasks"])
def test_rechunk_time_is_reported_apart(way: str, site: DaskSite, run: Run) -> None:
    assert list(phases(WAYS, way, site, run)) == ["rechunk"]


@dataclass(frozen=True)
class Stub:
    """A model that is as good as a test needs."""

    accuracy: float
    objective: float


@pytest.mark.parametrize(
    ("accuracy", "objective", "same"),
    [(0.9, 100.0, True), (0.905, 100.5, True), (0.88, 100.0, False), (0.9, 98.0, False)],
)
def test_what_counts_as_the_same(accuracy: float, objective: float, same: bool) -> None:
    left: Any = Stub(0.9, 100.0)
    right: Any = Stub(accuracy, objective)
    assert APP.same(left, right) is same


def test_data_sorted_by_three_classes(client: Client) -> None:
    dataset = replace(APP, label="target").open(InputChoice(iris_file(600), None, 0, 0, seed=1))
    with staged_on_dask(client, dataset, NBLOCKS) as site:
        assert all(len(set(block.result())) == 3 for block in blocks_of(site.labels))
        run = APP.pose(site)
        wanted = expected(run, dataset)
        found = {way: solve(site, run).value for way, solve in WAYS.run.items()}
        same = {way: APP.same(wanted, one) for way, one in found.items()}
    assert same == dict.fromkeys(WAYS.run, True)


def test_parts_pass_on_what_is_doubtful_unless_as_in_the_paper() -> None:
    assert MANY_PARTS.margin_error(100) > MANY_PARTS.margin_error(100_000) > 0
    assert PAPER.margin_error(100) == 0
