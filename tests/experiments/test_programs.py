"""Each program of ``spliter compare programs`` gives Dask's result in every way, in fewer tasks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from distributed import Client, LocalCluster

from spliter_experiments.compare.data.sources import Dataset, GeneratedPoints, cut_rows
from spliter_experiments.compare.engines.dask_engine import ENGINE, DaskEngine
from spliter_experiments.compare.engines.engine import Placement
from spliter_experiments.compare.ways import PARTITIONED
from spliter_experiments.compare.workloads.app import ways_of
from spliter_experiments.compare.workloads.dask_programs import COLUMNS, DASK_PROGRAMS
from spliter_experiments.compare.workloads.programs import Programs, Result
from spliter_experiments.harness.errors import MissingLibraryError, WaysDisagreeError
from tests import test_cli
from tests.test_cli import records_in, run

pytestmark = pytest.mark.backend("dask")

cluster = test_cli.cluster

POINTS = GeneratedPoints(rows=4_000, dims=COLUMNS, seed=3)
WAYS = ways_of(ENGINE, Programs)


def app_of(name: str, persisted: bool = False) -> Programs:
    try:
        return Programs(name, persisted)
    except MissingLibraryError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("persisted", [False, True], ids=["lazy", "persisted"])
@pytest.mark.parametrize("name", DASK_PROGRAMS)
def test_every_way_gives_the_same(name: str, persisted: bool, client: Client) -> None:
    app = app_of(name, persisted)
    check, engine, tasks = app.checking(), DaskEngine(client), {}
    chunks = cut_rows(POINTS.rows, 24)
    with (
        engine.meter() as meter,
        app.loaded(engine, Dataset(POINTS), chunks, Placement.DASK) as data,
    ):
        for way in app.ways:
            data.idle.wait()
            before = meter.reading()
            answer = WAYS.run[way](data.site, app.pose(data.site))
            tasks[way] = meter.reading().since(before).tasks
            check.check_equal(way, answer.value)
    assert tasks[PARTITIONED] < tasks["dask"] / 2


def test_results_are_those_of_numpy(client: Client) -> None:
    x = POINTS.read(0, POINTS.rows)
    expected = {
        "mean": x.mean(axis=0),
        "stencil": x.sum(),
        "zonal": x.reshape(-1, 2, 4).mean((0, 2)),
    }
    for name, value in expected.items():
        app = app_of(name)
        chunks = cut_rows(POINTS.rows, 5)
        with app.loaded(DaskEngine(client), Dataset(POINTS), chunks, Placement.DASK) as data:
            found = WAYS.run[PARTITIONED](data.site, app.pose(data.site)).value
        np.testing.assert_allclose(found.value, value)
        assert (found.chunks, found.exact) == (5, True)


def test_other_bits_are_refused_where_the_tasks_are_dasks() -> None:
    one, near = np.float64(1.0), np.nextafter(1.0, 2.0)
    check = Programs("sum").checking()
    check.check_equal("dask-rechunk", Result(near, 5, exact=False))
    check.check_equal("dask", Result(one, 5, exact=True))
    check.check_equal(PARTITIONED, Result(one, 5, exact=True))
    check.check_equal("dask", Result(near, 6, exact=True))
    with pytest.raises(WaysDisagreeError, match="dask-partitioned differs from dask"):
        check.check_equal(PARTITIONED, Result(near, 5, exact=True))
    with pytest.raises(WaysDisagreeError, match="dask-rechunk differs"):
        check.check_equal("dask-rechunk", Result(np.float64(1.1), 7, exact=False))


def test_records_tables_and_plots(cluster: LocalCluster, tmp_path: Path) -> None:
    common = [
        "compare", "programs", "--address", cluster.scheduler_address, "--workload", "sum,merge",
        "--rows", "3000", "--sweep", "1,9", "--output", str(tmp_path),
    ]  # fmt: skip
    result = run(*common, "--rounds", "1")
    assert result.exit_code == 0, result.output
    shown = " ".join(result.stdout.split())
    assert "programs of generated points: 3,000 x 8, x.sum(), lazy" in shown
    assert "time of dask over that of dask-partitioned, by blocks per core" in shown
    first = records_in(tmp_path)
    assert {(one.app, one.size) for one in first} == {("programs", "sum"), ("programs", "merge")}
    assert {one.way for one in first} == set(Programs.ways)
    assert {one.blocks for one in first} == {2, 18}
    tasks = {one.way: one.tasks for one in first if (one.size, one.blocks) == ("sum", 18)}
    assert tasks[PARTITIONED] == 3
    assert (tasks["dask"] or 0) > 18
    assert (tmp_path / "programs-sum.svg").exists()
    again = run(*common, "--rounds", "1", "--persisted", "--ways", f"dask,{PARTITIONED}")
    assert again.exit_code == 0, again.output
    assert {one.size for one in records_in(tmp_path)} > {"sum-persisted", "merge-persisted"}
    assert run(*common, "--rounds", "1").exit_code == 0
    assert [one for one in records_in(tmp_path) if "persisted" not in one.size] == first


def test_programs_without_their_library_are_left_out(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DASK_PROGRAMS, "sum", replace(DASK_PROGRAMS["sum"], needs="nowhere"))
    common = ["--address", cluster.scheduler_address, "--rows", "50", *test_cli.SMALL]
    result = run("compare", "programs", "--workload", "sum,mean", "--ways", "dask", *common)
    assert result.exit_code == 0, result.output
    assert "sum is left out: --workload sum needs nowhere" in " ".join(result.stderr.split())
    alone = run("compare", "programs", "--workload", "sum", *common)
    assert alone.exit_code == 2
    assert "--workload sum needs nowhere" in " ".join(alone.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--backend", "ray"], "--backend ray: the programs are Dask's"),
        (["--placement", "even"], "--placement even: Dask places chunks of programs"),
        (["--input", "x.npy"], "No such option: --input"),
        (["--workload", "magic"], "--workload 'magic' is unknown; take all, or some of sum, mean"),
        (["--ways", "spliter"], "no way 'spliter'; the ways are dask, dask-fused, dask-rechunk"),
    ],
)
def test_what_programs_cannot_do(arguments: list[str], complaint: str) -> None:
    result = run("compare", "programs", *arguments)
    assert result.exit_code == 2, result.output
    assert complaint in " ".join(result.stderr.split())
