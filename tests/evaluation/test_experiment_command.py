from __future__ import annotations

import json
import socket
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from spliter_experiments.cli import app
from spliter_experiments.evaluation import FIGURES
from tests.evaluation.scenes import SMALL, pretended, written


def run(*words: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["experiment", *map(str, words)], terminal_width=200)
    said = result.output.replace("\n", " ")
    assert result.exit_code == code, said
    return result


def test_list_has_all_figures() -> None:
    lines = run("list").output.splitlines()
    assert set(FIGURES) <= {line.split()[0] for line in lines if line.strip()}


def test_show_is_a_dry_run() -> None:
    said = " ".join(run("show", "9", "--size", "full").output.split())
    assert "48 blocks per core" in said
    assert "150 runs" in said
    assert "36,864" in said


def test_show_lists_runs() -> None:
    assert "fig18-laptop-process-fit-n1-b6-r7" in run("show", "18", "--runs").output


def test_dry_run_touches_nothing(tmp_path: Path) -> None:
    said = run("run", written(tmp_path), "--results", tmp_path / "out", "--dry-run").output
    assert "12 runs" in said
    assert not (tmp_path / "out").exists()


def test_run_resume_and_report(tmp_path: Path) -> None:
    scenario, results = written(tmp_path), tmp_path / "out"
    only = "fig09-laptop-dask-spliter-n1-b4-r1"
    assert (
        "1 runs done, 11 left" in run("run", scenario, "--results", results, "--only", only).output
    )
    run("resume", results, "--dry-run")
    assert "11 runs done, 0 left" in run("resume", results).output
    assert "0 runs done, 0 left" in run("resume", results).output
    table = pd.read_parquet(results / "results.parquet")
    assert len(table) == 12
    assert (table["seconds"] > 0).all()
    assert (table["init_seconds"] > 0).all()
    assert (table["peak_memory_bytes"] > 10**7).all()
    spliter = table[table["configuration"] == "spliter"]
    assert (spliter["split_seconds"] > 0).all()
    assert (table[table["configuration"] == "rechunk"]["rechunk_seconds"] > 0).all()
    # One task for each block, against one for each partition; and what adds them up.
    assert set(table[table["configuration"] == "baseline"]["tasks"]) == {5, 9}
    assert set(spliter["tasks"]) == {1, 3}
    said = run("report", results).output
    assert "report.html" in said
    assert "fig09.svg" in said


def test_few_blocks_are_rechunked_to_one_per_worker(tmp_path: Path) -> None:
    text = SMALL.replace("threads_per_worker = 1", "threads_per_worker = 3")
    text = text.replace("blocks_per_core = [4]", "blocks_per_node = [2]").replace(
        "nodes = [1, 2]", "nodes = [1]"
    )
    scenario, results = written(tmp_path, text), tmp_path / "out"
    run("run", scenario, "--results", results, "--configurations", "rechunk")
    table = pd.read_parquet(results / "results.parquet")
    # One merges the two blocks, one hands on, one counts; a chunk per core takes three of each.
    assert set(table["tasks"]) == {3}


def test_kernels_are_run_in_this_process(tmp_path: Path) -> None:
    text = SMALL.replace('"weak-scaling"', '"kernel"').replace("bins = 3", "neighbors = 3")
    text = text.replace('"histogram"', '"knn"').replace("nodes = [1, 2]", "nodes = [1]")
    text = text.replace('["baseline", "rechunk", "spliter"]', '["fit", "kneighbors"]')
    text = text.partition("[[claims")[0].replace(
        "seconds_per_run", "queries_per_node = 20\nseconds_per_run"
    )
    scenario, results = written(tmp_path, text), tmp_path / "out"
    assert "4 runs done, 0 left" in run("run", scenario, "--results", results).output
    table = pd.read_parquet(results / "results.parquet")
    assert set(table["engine"]) == {"process"}
    assert set(table["configuration"]) == {"fit", "kneighbors"}
    assert table["tasks"].isna().all()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["show", "22"], "there is no figure '22'; take one of 9,"),
        (["run", "fig1", "--results", "x"], "there is no figure 'fig1'"),
        (["show", "nowhere.toml"], "cannot read the scenario nowhere.toml"),
        (["show", "9", "--nodes", "two"], "--nodes takes whole numbers"),
        (["show", "9", "--nodes", "5"], "not measured on 5 nodes"),
        (["show", "9", "--configurations", "fast"], "no configuration fast"),
        (["show", "9", "--backend", "spark"], "no backend 'spark'"),
        (["resume", "nowhere"], "there is no folder nowhere"),
        (["report", "nowhere"], "there is no folder nowhere"),
    ],
)
def test_what_cannot_be(words: list[str], message: str) -> None:
    said = " ".join(run(*words, code=2).output.split())
    assert "Error: " in said
    assert message in said


def test_a_malformed_scenario_is_told_with_its_entry(tmp_path: Path) -> None:
    text = SMALL.replace("bins = 3", "bins = 0")
    said = run("run", written(tmp_path, text), "--results", tmp_path / "out", code=2).output
    assert "parameters.bins: Input should be greater than 0" in said
    assert not (tmp_path / "out").exists()


def test_a_scheduler_that_does_not_answer(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        scenario, results = written(tmp_path), tmp_path / "out"
        said = run("run", scenario, "--results", results, "--address", address, code=2).output
    assert "no scheduler answers" in said
    # It is resumed once there is one.
    assert "12 runs" in run("resume", results, "--dry-run").output


def test_a_scheduler_file_that_is_none(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.json"
    file.write_text("{}")
    words = ["run", written(tmp_path), "--results", tmp_path / "out", "--address", file]
    assert "is not a scheduler file" in " ".join(run(*words, code=2).output.split())


def test_results_of_another_version_are_refused(tmp_path: Path) -> None:
    results = pretended(tmp_path)
    file = sorted((results.path / "runs").iterdir())[0]
    file.write_text(json.dumps({**json.loads(file.read_text()), "schema_version": 7}))
    for command in "report", "resume":
        said = " ".join(run(command, results.path, code=2).output.split())
        assert "is of version 7 of the format of results" in said


def test_ctrl_c_tells_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("spliter_experiments.evaluation.runner.facts", interrupted)
    said = run("run", written(tmp_path), "--results", tmp_path / "out", code=130).output
    assert f"spliter experiment resume {tmp_path / 'out'}" in said
