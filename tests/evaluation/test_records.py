from __future__ import annotations

import json
import resource
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from spliter_experiments.evaluation.runner import requests_in, run_request
from spliter_experiments.harness.errors import IncompatibleResultsError, ResultsError
from spliter_experiments.harness.files import clear_partial
from spliter_experiments.harness.records import (
    COLUMNS,
    ResultsFolder,
    check_together,
)
from tests.evaluation.scenes import SMALL, pretend, pretended, small_request


def change(file: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    content = json.loads(file.read_text())
    edit(content)
    file.write_text(json.dumps(content))


def test_records_come_back_as_they_were(tmp_path: Path) -> None:
    results = pretended(tmp_path)
    records = results.records()
    assert len(records) == 12
    assert {record.run_id for record in records} == results.done()
    assert {record.seconds for record in records if record.configuration == "spliter"} == {1.0}
    assert all(record.versions["numpy"] for record in records)


def test_the_table_is_documented(tmp_path: Path) -> None:
    results = pretended(tmp_path)
    file = results.write_table(results.records())
    table = pq.read_table(file)
    assert table.column_names == list(COLUMNS)
    assert table.column("run_id").to_pylist() == [one.run_id for one in results.records()]


def test_phases_add_up_to_the_seconds(tmp_path: Path) -> None:
    for record in pretended(tmp_path).records():
        parts = (record.split_seconds or 0) + (record.rechunk_seconds or 0)
        assert parts + record.iterate_seconds == pytest.approx(record.seconds)


def test_a_record_of_another_version_is_refused(tmp_path: Path) -> None:
    results = pretended(tmp_path)
    file = sorted((results.path / "runs").iterdir())[3]
    change(file, lambda content: content.update(schema_version=99))
    with pytest.raises(
        IncompatibleResultsError, match=rf"{file.name} is of version 99 .*is version 1"
    ):
        results.records()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema_version": 1}', '{"run_id": 1}'])
def test_a_record_that_cannot_be_read_is_named(tmp_path: Path, content: str) -> None:
    results = pretended(tmp_path)
    file = sorted((results.path / "runs").iterdir())[0]
    file.write_text(content)
    with pytest.raises(
        ResultsError,
        match=f"{file.name}.*remove it and .*experiment resume`, or the same `spliter compare`",
    ):
        results.records()


@pytest.mark.parametrize(
    "wrong", [{"seconds": "abc"}, {"nodes": 1.5}, {"seconds": None}, {"x": float("nan")}, {"y": 1}]
)
def test_a_record_with_a_wrong_entry_is_named(tmp_path: Path, wrong: dict[str, Any]) -> None:
    results = pretended(tmp_path)
    file = sorted((results.path / "runs").iterdir())[0]
    change(file, lambda content: content.update(wrong))
    with pytest.raises(ResultsError, match=rf"not a record of a run \({next(iter(wrong))}: "):
        results.records()


@pytest.mark.parametrize("wrong", [{"text": 5}, {"repetitions": "a"}, {"size": "huge"}, {"y": 1}])
def test_a_plan_with_a_wrong_entry_is_named(tmp_path: Path, wrong: dict[str, Any]) -> None:
    results = pretended(tmp_path)
    (file,) = (results.path / "plans").iterdir()
    change(file, lambda content: content.update(wrong))
    with pytest.raises(ResultsError, match=rf"a plan cannot be read \({next(iter(wrong))}: "):
        requests_in(results)


def test_runs_of_another_scenario_are_not_mixed(tmp_path: Path) -> None:
    results = pretended(tmp_path)
    other = small_request(tmp_path, SMALL.replace("bins = 3", "bins = 4"))
    with pytest.raises(IncompatibleResultsError, match="another scenario of figure 9"):
        run_request(other, results, open_bench=pretend)
    records = results.records()
    with pytest.raises(IncompatibleResultsError, match="not of the same scenario"):
        check_together([*records, replace(records[0], plan_digest="other")])


def test_runs_of_other_versions_or_machines_are_not_mixed(tmp_path: Path) -> None:
    results = pretended(tmp_path)
    records = results.records()
    newer = replace(records[0], versions={**records[0].versions, "dask": "9999.1"})
    with pytest.raises(IncompatibleResultsError, match=r"same versions \(dask .*; dask 9999.1\)"):
        check_together([*records, newer])
    with pytest.raises(IncompatibleResultsError, match="same processor"):
        check_together([*records, replace(records[0], processor="an abacus")])


def test_a_run_on_another_machine_is_refused_before_it_runs(tmp_path: Path) -> None:
    results = pretended(tmp_path)
    for file in (results.path / "runs").iterdir():
        change(file, lambda content: content.update(processor="an abacus"))
    sorted((results.path / "runs").iterdir())[0].unlink()
    with pytest.raises(IncompatibleResultsError, match="an abacus"):
        run_request(small_request(tmp_path), results, open_bench=pretend)
    assert len(results.done()) == 11


def test_an_empty_folder_has_no_results(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="no finished run"):
        ResultsFolder(tmp_path).records()
    with pytest.raises(ResultsError, match="holds no results of `spliter experiment run`"):
        ResultsFolder(tmp_path).plans()


def test_no_room_for_a_record(tmp_path: Path) -> None:
    """A limit on the size of files stands for a full disk: writing fails half-way in both."""
    results = pretended(tmp_path)
    lost = sorted((results.path / "runs").iterdir())[0]
    lost.unlink()
    request = small_request(tmp_path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400, before[1]))
    try:
        with pytest.raises(ResultsError, match=r"cannot write .*mend that and .*experiment resume"):
            # What was asked for is there already; its record does not fit.
            run_request(request, results, only=[lost.stem], open_bench=pretend)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert len(results.records()) == 11
    assert not list(results.path.rglob("*.partial"))
    run_request(small_request(tmp_path), results, open_bench=pretend)
    assert len(results.records()) == 12


def test_what_a_killed_runner_left_half_written_is_cleared(tmp_path: Path) -> None:
    results = pretended(tmp_path)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(timeout=60)
    host = socket.gethostname()
    left = results.path / "runs" / f".x.{host}.{ended.pid}.partial"
    alive = results.path / "runs" / f".x.{host}.1.partial"
    elsewhere = results.path / "runs" / f".x.elsewhere.{ended.pid}.partial"
    for file in left, alive, elsewhere:
        file.write_text("{")
    clear_partial(results.path)
    assert [file.exists() for file in (left, alive, elsewhere)] == [False, True, True]
    assert len(results.records()) == 12
