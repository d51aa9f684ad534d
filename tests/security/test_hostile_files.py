"""Files of strangers: no code of theirs runs, and what is wrong with them is said."""

from __future__ import annotations

import ast
import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from spliter_experiments.cli import app
from spliter_experiments.compare.data.columns import Wanted
from spliter_experiments.compare.data.readers import open_source
from spliter_experiments.evaluation import plan_runs
from spliter_experiments.evaluation.catalog import parse_scenario, read_scenario
from spliter_experiments.harness.errors import (
    ExperimentError,
    InputError,
    PlanError,
    ResultsError,
    ScenarioError,
)
from spliter_experiments.harness.records import ResultsFolder
from spliter_slurm.site import parse_site
from tests.conftest import ROOT
from tests.evaluation.scenes import pretended
from tests.security.hostile import FILES, Bomb

SHIPPED = read_scenario("9")[0]


def test_the_bombs_go_off(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    pickle.loads(pickle.dumps(Bomb(mark)))
    assert mark.exists()


@pytest.mark.parametrize("write", FILES, ids=lambda write: write.__name__)
def test_no_data_file_runs_code(write: Callable[[Path, Path], Path], tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    file = write(tmp_path, mark)
    with pytest.raises(InputError):
        open_source(str(file), Wanted()).read(0, 1)
    assert not mark.exists()


def test_every_load_of_numpy_forbids_pickles() -> None:
    roots = ["spliter", "backends", "apps", "experiments", "slurm", "benchmarks", "scripts"]
    files = [file for root in roots for file in (ROOT / root).rglob("*.py")]
    loads = [
        (file.name, ast.unparse(call))
        for file in files
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and ast.unparse(call.func) in ("np.load", "numpy.load")
    ]
    assert len(files) > 100
    assert loads
    assert [load for load in loads if "allow_pickle=False" not in load[1]] == []


FORBIDDEN = re.compile(
    r"\b(yaml\.(unsafe_|full_)?load\b|pd\.read_pickle|pandas\.read_pickle|joblib\.load"
    r"|shelve\.open|marshal\.loads?|os\.system|shell=True|tempfile\.mktemp\b)"
)


def test_calls_that_run_what_a_file_says_are_not_used() -> None:
    roots = ["spliter", "backends", "apps", "experiments", "slurm", "benchmarks"]
    found = [
        f"{file.relative_to(ROOT)}: {match[0]}"
        for root in roots
        for file in (ROOT / root).rglob("*.py")
        for match in FORBIDDEN.finditer(file.read_text(encoding="utf-8"))
    ]
    assert found == []
    assert FORBIDDEN.search("subprocess.run(line, shell=True)")


def changed(entry: str, value: str) -> str:
    """Return a shipped scenario in which an entry has another value, wherever it stands."""
    text, count = re.subn(rf"(?m)^{entry} = .*$", lambda _: f"{entry} = {value}", SHIPPED)
    assert count
    return text


BOMBS = {
    "nested": "a = " + "[" * 5000 + "]" * 5000,
    "digits": SHIPPED + "\n[extra]\na = " + "1" * 5000,
    "long": SHIPPED + "#" * 2_000_000,
    "dotted": ".".join(["a"] * 3000) + " = 1",
    "infinite": changed("seconds_per_run", "inf"),
    "not a number": changed("seconds_per_run", "nan"),
    "path": changed("figure", '"../../elsewhere"'),
    "control": changed("title", '"\\u0000"'),
    "line break": changed("figure", '"9\\ntouch elsewhere"'),
    "empty": "",
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_scenarios_that_would_blow_up_are_refused(bomb: str) -> None:
    with pytest.raises(ScenarioError):
        parse_scenario(BOMBS[bomb], "hostile.toml")


def test_a_plan_of_too_many_runs_is_refused() -> None:
    scenario = parse_scenario(changed("repetitions", "100_000_000_000"), "many.toml")
    with pytest.raises(PlanError, match="more than the"):
        plan_runs(scenario, "laptop")


@pytest.mark.parametrize("bomb", ["nested", "digits", "long", "dotted", "empty"])
def test_site_profiles_that_would_blow_up_are_refused(bomb: str) -> None:
    with pytest.raises(ExperimentError):
        parse_site(BOMBS[bomb], "hostile", "hostile.toml")


@pytest.mark.parametrize("text", ["[" * 100_000, "null", "[]", '{"schema_version": 1}', "\x00"])
def test_records_that_are_none_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "one.json").write_text(text, encoding="utf-8")
    with pytest.raises(ResultsError):
        ResultsFolder(tmp_path).records()


HOSTILE: dict[str, Any] = {
    "engine": "no-such-engine",
    "nodes": 0,
    "workers": -1,
    "rows": 10**30,
    "x": -1.0,
    "seconds": 1e300,
    "iterate_seconds": -5.0,
    "peak_memory_bytes": 2**70,
    "host_cores": 0,
    "processor": "\ud800",
    "versions": {"\udfff": "1"},
    "host": "\u001b[31mred",
    "started_at": "yesterday",
}


@pytest.mark.parametrize("entry", HOSTILE)
def test_records_out_of_range_are_named(entry: str, tmp_path: Path) -> None:
    results = pretended(tmp_path)
    for file in (results.path / "runs").iterdir():
        content = json.loads(file.read_text(encoding="utf-8"))
        file.write_text(json.dumps({**content, entry: HOSTILE[entry]}), encoding="utf-8")
    refused = run("experiment", "report", str(results.path))
    assert refused.exit_code == 2, refused.exception
    said = " ".join(refused.output.split())
    assert f"is not a record of a run ({entry}" in said


@pytest.mark.parametrize(
    "plan",
    [{"engine": "no-such-engine"}, {"nodes": [0]}, {"repetitions": 10**30}, {"scenario": "\ud800"}],
    ids=repr,
)
def test_plans_out_of_range_are_refused(plan: dict[str, Any], tmp_path: Path) -> None:
    results = pretended(tmp_path)
    (file,) = (results.path / "plans").iterdir()
    content = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**content, **plan}), encoding="utf-8")
    refused = run("experiment", "report", str(results.path))
    assert refused.exit_code == 2, refused.exception
    assert refused.output.startswith("Error: ")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


@pytest.mark.parametrize("title", ["[/bold]", "[link=http://a]x", "$\\frac$"])
def test_titles_are_text_and_nothing_else(title: str, tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(changed("title", json.dumps(title)), encoding="utf-8")
    shown = run("experiment", "show", str(file))
    assert (shown.exit_code, shown.exception) == (0, None)
    assert title in shown.output


def test_titles_do_not_steer_the_terminal() -> None:
    with pytest.raises(ScenarioError, match="control characters"):
        parse_scenario(changed("title", '"\\u001b[31mred"'), "own.toml")


def test_errors_do_not_steer_the_terminal() -> None:
    refused = run("experiment", "show", "\x1b[31mred")
    assert refused.exit_code == 2
    assert "\x1b" not in refused.output


@pytest.mark.backend("dask")
def test_names_of_files_are_text_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "[bold]a$_$[red].npy"
    np.save(file, np.arange(40.0).reshape(20, 2))
    done = run(
        *("compare", "sum", "--input", str(file), "--ways", "spliter", "--rounds", "1"),
        *("--blocks-per-core", "2", "--workers", "1", "--output", str(tmp_path / "results")),
    )
    assert (done.exit_code, done.exception) == (0, None), done.output
    assert "[bold]a$_$[red].npy" in done.output
