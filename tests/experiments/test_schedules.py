"""Every way processes all uneven blocks, with the tasks that its description promises."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from distributed import Client
from scipy import ndimage

from spliter import Schedule
from spliter_experiments.compare.apps import APPS
from spliter_experiments.compare.data.datasets import InputChoice
from spliter_experiments.compare.data.uneven import WORKLOADS, Items, UnevenItems, sines_per_second
from spliter_experiments.compare.engines.dask_engine import ENGINE
from spliter_experiments.compare.floor import Floor
from spliter_experiments.compare.registry import ways_of, ways_on
from spliter_experiments.compare.ways import IDEAL, NUMBA, SCHEDULED
from spliter_experiments.compare.workloads.dask import DaskSite
from spliter_experiments.compare.workloads.schedules import Schedules, Work, process_timed
from spliter_experiments.harness.errors import OptionError
from tests.experiments.staging import answer, staged_on_dask, tasks_of

WAYS = ways_of(ENGINE, APPS["schedules"])

pytestmark = pytest.mark.backend("dask")

NBLOCKS = 20
ROWS = 2 * NBLOCKS
FEW_WAYS = ("spliter", "ss-team", "per-block", "joblib", NUMBA, IDEAL)
"""Of each kind one: other workloads give the other schedules nothing new to cut."""

ANSWERS = [
    (name, way)
    for name, workload in WORKLOADS.items()
    for way in (Schedules.ways if name == "simulated" else FEW_WAYS)
    if way != NUMBA or workload.compiled is not None
]
CHOICE = InputChoice(None, None, rows=ROWS, dims=1, seed=3)


def app_of(workload: str) -> Schedules:
    if WORKLOADS[workload].needs:
        pytest.importorskip(WORKLOADS[workload].needs)
    return Schedules(workload, ms=0.02)


@pytest.fixture(scope="module")
def posed(
    client_of_two_threads: Client, processes: dict[str, Floor], request: pytest.FixtureRequest
) -> Iterator[tuple[Schedules, DaskSite]]:
    app = app_of(request.param)
    with (
        app.open(CHOICE) as dataset,
        staged_on_dask(client_of_two_threads, dataset, NBLOCKS, **processes) as site,
    ):
        yield app, site


@pytest.fixture(scope="module")
def simulated(client_of_two_threads: Client) -> Iterator[DaskSite]:
    with (
        app_of("simulated").open(CHOICE) as dataset,
        staged_on_dask(client_of_two_threads, dataset, NBLOCKS) as site,
    ):
        yield site


@pytest.mark.parametrize(("posed", "way"), ANSWERS, indirect=["posed"])
def test_answers_are_those_of_all_items(way: str, posed: tuple[Schedules, DaskSite]) -> None:
    app, site = posed
    work = app.pose(site)
    wanted = work.workload.kernel(site.dataset.points.read(0, ROWS), work.effort)
    found = answer(app, WAYS, way, site, work)
    assert app.same(found, wanted), (found, wanted)
    assert not app.same(found, wanted + 1)


def test_names_of_ways_are_complete() -> None:
    assert set(Schedules.ways) == {*WAYS.run, "joblib", NUMBA, IDEAL} - {
        "rechunk-p2p",
        "rechunk-tasks",
    }
    assert set(Schedules.on_request) < set(ways_on(ENGINE, Schedules()))


def test_number_of_tasks(simulated: DaskSite) -> None:
    work = Schedules(ms=0.02).pose(simulated)
    # Sums: of 16 blocks each, then of those.
    assert tasks_of(WAYS, "per-block", simulated, work) == NBLOCKS + 2 + 1
    for way in ("fac2-team", "ss-team"):
        assert tasks_of(WAYS, way, simulated, work) == 1
    for kind in SCHEDULED:
        partitions = len(Schedule(kind).sizes(NBLOCKS, cores=2))
        tasks = tasks_of(WAYS, kind, simulated, work)
        assert partitions < tasks <= partitions + 5, kind  # and sums
    assert tasks_of(WAYS, "ss", simulated, work) > NBLOCKS
    assert tasks_of(WAYS, "spliter", simulated, work) <= 2 + 3


@pytest.mark.parametrize("workload", WORKLOADS)
def test_items_do_not_depend_on_the_blocks_and_dear_ones_come_first(workload: str) -> None:
    app_of(workload)
    items = UnevenItems(ROWS, 1, 3, workload)
    everything = items.read(0, ROWS)
    assert np.array_equal(everything[7:30], items.read(7, 30))
    assert items.read(5, 5).shape == (0, *everything.shape[1:])
    with Schedules(workload).open(CHOICE) as dataset:
        assert dataset.like is not None
        assert dataset.like.dtype == everything.dtype
    kernel = WORKLOADS[workload].kernel
    measure = count_objects if workload == "label" else kernel
    dear, cheap = (measure(half, 1e-4) for half in np.array_split(everything, 2))
    assert dear == cheap if workload == "even" else dear > cheap


def count_objects(pictures: Items, effort: float) -> int:
    return sum(ndimage.label(picture)[1] for picture in pictures)


def test_random_order_has_the_same_items() -> None:
    with Schedules(shuffle=True).open(CHOICE) as dataset:
        mixed = dataset.points.read(0, ROWS)[:, 0]
    assert sorted(mixed) == [1.0] * NBLOCKS + [10.0] * NBLOCKS
    assert list(mixed) != sorted(mixed, reverse=True)


@pytest.mark.parametrize("posed", ["simulated"], indirect=True)
def test_the_ideal_is_the_time_of_the_blocks(posed: tuple[Schedules, DaskSite]) -> None:
    app, site = posed
    contender = app.in_processes(IDEAL, site, app.pose(site))
    contender.prepare()
    found = contender.run()
    contender.release()
    assert found.seconds is not None
    assert found.seconds > 0


def test_time_of_blocks_that_sleep() -> None:
    work = Work("emulated", effort=0.02)
    value, seconds = process_timed([np.ones((2, 1)), np.ones((1, 1))], work, 1)
    assert value == 3
    assert seconds >= 0.06


def test_effort_follows_the_speed_of_the_machine() -> None:
    assert sines_per_second(trials=2, sines=50_000) > 100


def test_numba_is_left_out_where_it_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "cannot compile --workload zlib" in Schedules("zlib").absent()[NUMBA]
    module = "spliter_experiments.compare.workloads.schedules.find_spec"
    monkeypatch.setattr(module, lambda name: None)
    assert 'pip install "pyspliter[schedules]"' in Schedules("mandelbrot").absent()[NUMBA]
    with pytest.raises(OptionError, match="--workload label needs skimage: pip install"):
        Schedules("label")


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"workload": "zip"}, "--workload 'zip' is unknown; take one of simulated, even, emul"),
        ({"ms": 0.0}, "--ms must be positive, got 0.0"),
        ({"ms": float("nan")}, "--ms must be positive, got nan"),
        ({"order": "random"}, "--order must be contiguous or strided, got 'random'"),
    ],
)
def test_wrong_settings(settings: dict[str, object], complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        Schedules(**settings)  # type: ignore[arg-type]


def test_an_input_is_refused() -> None:
    choice = InputChoice("points.npy", None, rows=ROWS, dims=1, seed=3)
    with (
        pytest.raises(OptionError, match="--input does not go with schedules"),
        Schedules().open(choice),
    ):
        pass
