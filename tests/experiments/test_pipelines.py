"""Each workload of ``spliter compare pipeline`` computes the same in every way."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from benchmarks.performance import table_of
from spliter.pipeline import explain, options
from spliter_experiments.compare.engines.dask_engine import connect
from spliter_experiments.compare.engines.engine import ClusterChoice
from spliter_experiments.compare.ways import MEANINGS, WAYS
from spliter_experiments.harness.console import Listener
from spliter_experiments.harness.equal import same
from spliter_experiments.harness.errors import OptionError, WaysDisagreeError
from spliter_experiments.harness.records import Record, ResultsFolder
from spliter_experiments.harness.workload import Comparison, Options, run_cases
from spliter_experiments.pipelines import arrays, frames
from spliter_experiments.pipelines.catalog import CATALOG
from spliter_experiments.pipelines.names import PROGRAMS
from spliter_experiments.pipelines.variants import OURS, PLAIN, Entry, as_is
from spliter_experiments.pipelines.workload import PIP, Pipeline
from tests.test_cli import run

FEW = 40
ROWS = {"births": 200_000, "crime-index": 4_000, "movielens": 200_000}
"""Rows of workloads that find nothing among `FEW`, or in a batch of them."""

COMPILED = "haversine"
"""Workload whose loop the tests compile with numba."""

IN_BATCHES = [name for name, one in CATALOG.items() if OURS not in one.absent]


def run_workload(
    name: str,
    rows: int | None = None,
    rounds: int = 1,
    ways: str | None = None,
    note: Callable[[str], None] = lambda _: None,
    folder: ResultsFolder | None = None,
) -> list[Record]:
    listener, found = Listener(note=note), Comparison()
    cases = Pipeline(name, rows).cases(Options(ways, rounds, seed=3), listener, "")
    run_cases(cases, found, listener, folder)
    return found.records


def posed(name: str) -> tuple[Entry, list[Any]]:
    """Return a small workload and its arguments; skip if a library is missing."""
    workload = CATALOG[name]
    try:
        arguments = [*workload.make(ROWS.get(name, FEW), 3)]
        workload.ways[PLAIN](*arguments)
    except ModuleNotFoundError as error:
        pytest.skip(f"{name} is not run: {error}")
    return workload, arguments


@pytest.fixture
def loops_as_written(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the loops for numba in Python, but for one: compiling takes seconds each."""
    if request.getfixturevalue("name") != COMPILED:
        numba = pytest.importorskip("numba")
        monkeypatch.setattr(numba.config, "DISABLE_JIT", True)


@pytest.mark.usefixtures("loops_as_written")
@pytest.mark.parametrize("name", CATALOG)
def test_every_way_gives_the_same(name: str) -> None:
    workload, _ = posed(name)
    notes: list[str] = []
    records = run_workload(name, ROWS.get(name, FEW), note=notes.append)
    ran = {record.way for record in records}
    left_out = {note.partition(" ")[0] for note in notes}
    assert ran | left_out == {*workload.ways, *workload.absent}
    assert PLAIN in ran
    assert (OURS in ran) == (name in IN_BATCHES)


@pytest.mark.parametrize("name", IN_BATCHES)
def test_pipelines_run_in_batches(name: str) -> None:
    workload, arguments = posed(name)
    batch = ROWS.get(name, FEW) // 10
    ours, again = (workload.ways[OURS](*each) for each in (arguments, posed(name)[1]))
    assert isinstance(ours, functools.partial)
    with options(batch=batch):
        found, shown = ours(), explain(again.func, *again.args)  # type: ignore[attr-defined]
    assert f" items in batches of {batch}, " in shown
    assert same(workload.ways[PLAIN](*arguments)(), found, workload.exact)


def test_the_table_of_workloads_is_complete() -> None:
    assert [*CATALOG] == [*PROGRAMS]
    ways = {way for one in CATALOG.values() for way in (*one.ways, *one.absent)}
    assert ways == set(WAYS["pipeline"])
    assert ways <= set(MEANINGS)


@pytest.mark.parametrize("name", CATALOG)
def test_data_are_reproducible_and_never_constant(name: str) -> None:
    workload, arguments = posed(name)
    again = workload.make(ROWS.get(name, FEW), 3)
    assert same(arguments, again, exact=True)
    assert (
        not same(arguments, workload.make(ROWS.get(name, FEW), 4), exact=False) or name == "births"
    )
    for one in arguments:
        assert not isinstance(one, np.ndarray) or len(np.unique(one)) >= len(one)


def test_black_scholes_keeps_parity_and_its_limits() -> None:
    price, strike, t, rate, vol = arrays.OPTIONS(1000, 1)
    call, put = arrays.black_scholes(price, strike, t, rate, vol)
    np.testing.assert_allclose(call - put, price - strike * np.exp(-rate * t), atol=1e-9)
    at_once, _ = arrays.black_scholes(price, strike, t * 1e-12, rate, vol)
    np.testing.assert_allclose(at_once, np.maximum(price - strike, 0.0), atol=1e-3)


def test_distances_on_the_sphere() -> None:
    latitude, longitude = arrays.HERE
    where = np.array([latitude, -latitude]), np.array([longitude, longitude + np.pi])
    np.testing.assert_allclose(arrays.haversine(*where), [0.0, np.pi * arrays.EARTH_MILES])


def test_bodies_keep_their_momentum() -> None:
    mass, *state = arrays.BODIES(50, 2)
    still = [*state[:3], *np.zeros((3, 50))]
    moved = arrays.nbody(mass, *still)
    before = [np.sum(mass * one) for one in still[:3]]
    np.testing.assert_allclose([np.sum(mass * one) for one in moved], before, rtol=1e-12)
    assert not np.array_equal(moved[0], still[0])


def test_water_is_neither_lost_nor_still() -> None:
    height, u, v = arrays.make_water(40, 2)
    later, *_ = arrays.shallow_water(height, u, v)
    np.testing.assert_allclose(later.sum(), height.sum(), rtol=1e-12)
    assert not np.allclose(later, height, rtol=1e-6)


def test_postal_codes_are_cleaned() -> None:
    zips = pd.Series(["10001", "10001-1234", "N/A", "00000", None, "11201"], dtype="str")
    found = frames.clean_zips(zips)
    assert [*found[~pd.isna(found)]] == ["10001", "11201"]
    assert pd.isna(found).sum() == 1


def test_births_of_names_like_leslie() -> None:
    names = pd.DataFrame(
        {
            "year": [1990, 1990, 1990, 1990, 1991],
            "sex": ["F", "F", "M", "F", "F"],
            "name": ["Lesley", "Leslie", "Leslie", "Anna", "Leslie"],
            "births": [3, 4, 5, 100, 6],
        }
    )
    found = frames.birth_analysis(names)
    assert found.to_dict() == {(1990, "F"): 7, (1990, "M"): 5, (1991, "F"): 6}


def test_results_that_differ_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Entry(
        arrays.TERMS,
        10,
        {
            PLAIN: as_is(arrays.ten_adds),
            OURS: as_is(lambda x, y: arrays.ten_adds(x, y) * (1 + 1e-15)),
        },
    )
    monkeypatch.setitem(CATALOG, "wrong", wrong)
    with pytest.raises(WaysDisagreeError, match="pipeline differs from plain"):
        run_workload("wrong")
    rounded = Entry(arrays.TERMS, 10, wrong.ways, exact=False)
    monkeypatch.setitem(CATALOG, "wrong", rounded)
    assert len(run_workload("wrong")) == 2


def test_missing_libraries_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(*arguments: Any) -> Any:
        raise ModuleNotFoundError("No module named 'fast'", name="fast")

    ways = {PLAIN: as_is(arrays.ten_adds), "numba": prepare}
    monkeypatch.setitem(CATALOG, "needy", Entry(arrays.TERMS, 10, ways))
    notes: list[str] = []
    records = run_workload("needy", note=notes.append)
    assert [record.way for record in records] == [PLAIN]
    assert notes == [f"numba is left out: No module named 'fast'; {PIP}"]
    with pytest.raises(OptionError, match="--ways numba: No module named 'fast'"):
        run_workload("needy", ways="numba")
    monkeypatch.setitem(CATALOG, "needy", Entry(prepare, 10, ways))
    needs = "--workload needy needs more: No module named 'fast'"
    with pytest.raises(OptionError, match=needs):
        run_workload("needy")


def test_of_several_workloads_one_without_its_library_is_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def make(rows: int, seed: int) -> Any:
        raise ModuleNotFoundError("No module named 'fast'", name="fast")

    monkeypatch.setitem(CATALOG, "utm", Entry(make, 10, {PLAIN: as_is(arrays.ten_adds)}))
    chosen = ("--rows", "50", "--rounds", "1", "--ways", "plain")
    several = run("compare", "pipeline", "--workload", "utm,ten-adds", *chosen)
    assert several.exit_code == 0, several.output
    assert "utm is left out: --workload utm needs more: No module named 'fast'" in several.stderr
    assert "ten-adds: the same addition" in " ".join(several.stdout.split())
    alone = run("compare", "pipeline", "--workload", "utm", *chosen)
    assert alone.exit_code == 2
    assert "No module named 'fast'" in alone.stderr


def test_the_command_shows_a_table_and_keeps_records(tmp_path: Path) -> None:
    chosen = ("--workload", "ten-adds,haversine", "--rows", "50", "--rounds", "2")
    arguments = ("compare", "pipeline", *chosen, "--ways", "plain,pipeline")
    result = run(*arguments, "--output", str(tmp_path))
    assert result.exit_code == 0, result.output
    shown = " ".join(result.stdout.split())
    assert "ten-adds: the same addition ten times (NumPy); 50 rows" in shown
    assert "pipeline: the program in batches" in shown
    folder = ResultsFolder(tmp_path)
    first = folder.records()
    assert {one.size for one in first} == {"ten-adds", "haversine"}
    assert {(one.way, one.repetition) for one in first if one.size == "ten-adds"} == {
        (way, number) for way in (PLAIN, OURS) for number in (1, 2)
    }
    again = run(*arguments, "--output", str(tmp_path))
    assert again.exit_code == 0, again.output
    assert folder.records() == first


@pytest.mark.backend("dask")
def test_over_a_split_tasks_are_partitions_and_nothing_moves(dask_cluster: Any) -> None:
    from benchmarks.pipelines import measure

    address = dask_cluster.scheduler_address
    with connect(ClusterChoice(address, workers=2, threads=1)) as engine:
        runs = {run.way: run for run in measure(engine, rows=2_000, blocks=24, rounds=1)}
    assert (runs["pipeline"].tasks, runs["pipeline"].nbytes) == (2, 0)
    assert runs["per-block"].tasks == 24
    assert (runs["dask"].tasks or 0) > 24


def test_ratios_of_workloads_are_by_name(tmp_path: Path) -> None:
    folder = ResultsFolder(tmp_path)
    run_workload("ten-adds", FEW, rounds=2, ways=OURS, folder=folder)
    run_workload("haversine", FEW, ways=f"{OURS},dask", folder=folder)
    table = table_of(folder.records())
    assert table.headings == ("workload", "pipeline, s", "dask", "plain")
    assert [row[0] for row in table.rows] == ["haversine", "ten-adds"]
    assert table.rows[1][2] == "-"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--workload", "nothing"), "--workload 'nothing' is unknown; take all, or some of"),
        (("--workload", ""), "--workload '' is unknown"),
        (("--ways", "fast"), "there is no way 'fast'"),
    ],
)
def test_options_that_cannot_be(arguments: tuple[str, ...], complaint: str) -> None:
    result = run("compare", "pipeline", *arguments)
    assert result.exit_code == 2
    assert complaint in " ".join(result.stderr.split())
