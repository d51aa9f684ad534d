from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spliter_experiments.evaluation.plan import PlannedRun
from spliter_experiments.evaluation.runner import (
    pending,
    request_for,
    requests_in,
    run_request,
)
from spliter_experiments.evaluation.schema import Scenario
from spliter_experiments.harness.console import Listener
from spliter_experiments.harness.errors import ClusterError, PlanError
from spliter_experiments.harness.records import ResultsFolder
from spliter_experiments.harness.runner import Bench
from tests.conftest import ROOT, SOURCE_ROOTS
from tests.evaluation.scenes import SMALL, pretend, pretended, small_request, written

KILLS = 3


def test_all_runs_are_done_once(tmp_path: Path) -> None:
    results = pretended(tmp_path)
    found = Counter((r.configuration, r.nodes, r.repetition) for r in results.records())
    assert len(found) == 12
    assert set(found.values()) == {1}
    assert pending(small_request(tmp_path), results) == []


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    results = pretended(tmp_path)
    written_at = {file: file.stat().st_mtime_ns for file in (results.path / "runs").iterdir()}
    assert run_request(small_request(tmp_path), results, open_bench=pretend) == 0
    assert {file: file.stat().st_mtime_ns for file in written_at} == written_at


def test_only_some_runs(tmp_path: Path) -> None:
    request, results = small_request(tmp_path), ResultsFolder(tmp_path / "results")
    names = [run.id for run in request.runs()][2:5]
    assert run_request(request, results, only=names, open_bench=pretend) == 3
    assert results.done() == set(names)
    # The folder knows of the others.
    assert len(pending(requests_in(results)[0], results)) == 9


def test_some_runs_leave_the_plan_as_it_is(tmp_path: Path) -> None:
    results = pretended(tmp_path)
    more = small_request(tmp_path, SMALL.replace("repetitions = 2", "repetitions = 5"))
    names = [run.id for run in more.runs() if run.repetition == 5]
    run_request(more, results, only=names, open_bench=pretend)
    assert len(requests_in(results)[0].runs()) == 12
    assert len(results.records()) == 18


def test_a_narrower_or_a_wider_request_forgets_nothing(tmp_path: Path) -> None:
    scenario, results = written(tmp_path, SMALL), ResultsFolder(tmp_path / "results")
    chosen: list[dict[str, Any]] = [
        {"configurations": ("spliter",), "nodes": (1,), "repetitions": 1},
        {"configurations": ("baseline",), "nodes": (2,), "repetitions": 3},
        {},
        {"configurations": ("baseline",), "nodes": (1,)},
    ]
    planned = []
    for options in chosen:
        run_request(
            request_for(str(scenario), "laptop", "dask", **options), results, open_bench=pretend
        )
        (kept,) = requests_in(results)
        planned.append((len(kept.runs()), len(pending(kept, results))))
    assert planned == [(1, 0), (12, 8), (18, 5), (18, 5)]


def test_a_run_there_is_not(tmp_path: Path) -> None:
    results = ResultsFolder(tmp_path / "results")
    with pytest.raises(PlanError, match=r"has no run 'fig09-r99'.*lists them"):
        run_request(small_request(tmp_path), results, only=["fig09-r99"], open_bench=pretend)
    assert not results.path.exists()


def test_runs_until_a_failure_are_kept_and_the_rest_is_resumed(tmp_path: Path) -> None:
    idle = itertools.count()

    def wait_until_idle() -> None:
        if next(idle) == 3 + 4:  # after the warm-up of three configurations
            raise ClusterError("gone")

    @contextmanager
    def fails(
        scenario: Scenario, runs: Sequence[PlannedRun], address: str | None, listen: Listener
    ) -> Iterator[Bench]:
        with pretend(scenario, runs, address, listen) as bench:
            yield replace(bench, wait_until_idle=wait_until_idle)

    results = ResultsFolder(tmp_path / "results")
    with pytest.raises(ClusterError):
        run_request(small_request(tmp_path), results, open_bench=fails)
    assert len(results.records()) == 4
    (request,) = requests_in(results)
    assert run_request(request, results, open_bench=pretend) == 8
    assert len(results.records()) == 12


def test_stands_come_in_an_order_that_the_seed_decides(tmp_path: Path) -> None:
    def order(seed: int) -> list[int]:
        seen: list[int] = []

        def noting(
            scenario: Scenario, runs: Sequence[PlannedRun], address: str | None, listen: Listener
        ) -> AbstractContextManager[Bench]:
            seen.append(runs[0].nodes)
            return pretend(scenario, runs, address, listen)

        text = SMALL.replace("nodes = [1, 2]", "nodes = [1, 2, 3, 4, 5]")
        text = text.replace("seed = 7", f"seed = {seed}")
        request = small_request(tmp_path, text)
        run_request(
            request, ResultsFolder(tmp_path / f"r{seed}-{time.time_ns()}"), open_bench=noting
        )
        return seen

    assert order(1) == order(1)
    assert any(order(seed) != [1, 2, 3, 4, 5] for seed in (1, 2))


def killed_at(moment: float, scenario: str, results: Path, bench: str) -> int:
    """Run until a moment after the first record, then kill the whole group of processes."""
    words = [sys.executable, "-m", "tests.evaluation.killed", scenario, str(results), bench]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, SOURCE_ROOTS))}
    runs = results / "runs"
    before = len(list(runs.glob("*.json")))
    process = subprocess.Popen(words, env=environment, cwd=ROOT, start_new_session=True)
    deadline = time.monotonic() + 120
    while process.poll() is None and len(list(runs.glob("*.json"))) == before:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    time.sleep(moment)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait(timeout=60)


def whole(results: Path) -> list[str]:
    """Return the names of all records, each of which has to be whole."""
    files = sorted((results / "runs").glob("*.json"))
    names = [json.loads(file.read_text())["run_id"] for file in files]
    assert names == [file.stem for file in files]
    return names


def test_a_runner_killed_at_random_moments_loses_nothing(tmp_path: Path) -> None:
    text = SMALL.replace("repetitions = 2", "repetitions = 100")
    scenario, results = written(tmp_path, text), tmp_path / "results"
    moments = random.Random(5)
    last: list[str] = []
    killed = 0
    for _ in range(KILLS):
        killed += (
            killed_at(moments.uniform(0, 0.2), scenario, results, "pretended") == -signal.SIGKILL
        )
        names = whole(results)
        assert set(last) <= set(names), "a record that was there is lost"
        last = names
    assert killed == KILLS
    folder = ResultsFolder(results)
    (request,) = requests_in(folder)
    left = len(request.runs()) - len(last)
    assert left > 0
    assert run_request(request, folder, open_bench=pretend) == left
    assert len(folder.records()) == len(request.runs()) == 600
    assert not list(results.rglob("*.partial"))


def test_a_runner_killed_at_work_is_resumed(tmp_path: Path) -> None:
    text = SMALL.replace("repetitions = 2", "repetitions = 6").replace(
        "nodes = [1, 2]", "nodes = [1]"
    )
    scenario, results = written(tmp_path, text), tmp_path / "results"
    assert killed_at(0.05, scenario, results, "real") == -signal.SIGKILL
    assert 0 < len(whole(results)) < 18
    folder = ResultsFolder(results)
    (request,) = requests_in(folder)
    run_request(request, folder)
    records = folder.records()
    assert len(records) == 18
    # Every run has counted its own tasks: one for each block, and one that adds up.
    assert {record.tasks for record in records if record.configuration == "baseline"} == {5}
    assert len({record.tasks for record in records if record.configuration == "spliter"}) == 1
