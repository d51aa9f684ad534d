"""The ``spliter`` command from end to end, on real embedded clusters and on bad input."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

pytest.importorskip("distributed")

from distributed import LocalCluster
from typer.testing import CliRunner, Result

import spliter
from spliter import BackendInfo
from spliter_experiments.cli import app
from spliter_experiments.compare import registry
from spliter_experiments.compare.engines import dask_engine
from spliter_experiments.harness.records import Record, ResultsFolder
from tests.conftest import SOURCE_ROOTS, RunPython
from tests.experiments.staging import iris_file

pytestmark = [pytest.mark.thorough, pytest.mark.backend("dask")]

SMALL = ["--blocks-per-core", "3", "--rounds", "1"]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def compare(*arguments: str) -> Result:
    return run("compare", "histogram", *arguments)


def records_in(folder: Path) -> list[Record]:
    return ResultsFolder(folder).records()


def settings_in(folder: Path) -> dict[str, Any]:
    (plan,) = ResultsFolder(folder).plans()
    return plan


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """The user's own cluster: one worker of two threads."""
    from tests.dask_backend.conftest import start_processes

    with start_processes(1, threads_per_worker=2) as started:
        yield started


def test_version() -> None:
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"spliter {spliter.__version__}\n")


@pytest.mark.parametrize("module", ["spliter", "spliter_experiments"])
def test_packages_run_as_the_command(module: str, run_python: RunPython) -> None:
    assert run_python("-m", module, "--version").stdout == f"spliter {spliter.__version__}\n"


SLOW = {"dask", "distributed", "matplotlib", "pandas", "sklearn", "scipy"}
"""Packages that take a second or more to import."""


@pytest.mark.parametrize("arguments", [["-h"], ["doctor", "-h"], ["compare", "-h"]])
def test_a_command_imports_what_it_needs(arguments: list[str], run_python: RunPython) -> None:
    program = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from spliter_experiments.cli import app\n"
        f"assert 'Usage: ' in CliRunner().invoke(app, {arguments}).stdout\n"
        f"print(sorted({SLOW} & set(sys.modules)))"
    )
    done = run_python("-c", program)
    assert done.stdout == "[]\n", done.stderr


def test_help_says_what_every_way_is() -> None:
    shown = " ".join(run("compare", "histogram", "--help").stdout.replace("│", " ").split())
    assert "per-block: one task per block" in shown
    assert "floor: the same kernel in plain processes" in shown


def test_help_lists_the_ways_and_shows_the_defaults_of_each_app() -> None:
    shown = {
        name: " ".join(run("compare", name, "--help").stdout.split())
        for name in ("sum", "kmeans", "csvm", "knn")
    }
    assert "dask-ml" in shown["kmeans"]
    assert "--label" in shown["csvm"]
    assert "--queries" in shown["knn"]
    assert all("--blocks-per-core" in text for text in shown.values())


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--input", "nowhere.npy"], "there is no such file"),
        (["--input", iris_file(150), "--columns", "width"], "no column 'width'"),
        (["--ways", "spliter,magic"], "no way 'magic'"),
        (["--sweep", "1,two"], "--sweep takes whole numbers"),
        (["--rows", "10"], "10 rows cannot be cut into 96 blocks"),
        (["--bins", "1000", "--dims", "3"], "1000^3 bins"),
        (["--rows", "0"], "Invalid value for '--rows'"),
        (["--columns", "a"], "goes with --input"),
        (["--address", "nowhere"], "neither an address"),
        (["--output", "/dev/null/results"], "cannot write results"),
        (["--rows", "many"], "Invalid value for '--rows'"),
        (["--address", "magic://somewhere:1"], "no scheduler answers"),
        (["--placement", "compss"], "--placement compss is none of dask's"),
        (["--backend", "magic"], "--backend: there is no 'magic'; take one of dask, dataclay"),
    ],
)
def test_what_cannot_be_done_ends_with_2_and_says_why(arguments: list[str], complaint: str) -> None:
    result = compare(*arguments)
    assert result.exit_code == 2, result.output
    assert complaint in " ".join(result.stderr.replace("│", " ").split())
    assert "Traceback" not in result.output


def test_engine_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.MODULES, "dataclay", "_no_such_module:ENGINE")
    result = compare("--backend", "dataclay")
    assert result.exit_code == 2
    assert "--backend dataclay cannot be used here: No module named" in result.stderr
    assert 'pip install "pyspliter[dataclay]"' in " ".join(result.stderr.split())


def test_file_that_is_no_scheduler_file(tmp_path: Path) -> None:
    for text in ("{", "{}", "[1]"):
        (tmp_path / "scheduler.json").write_text(text, encoding="utf-8")
        result = compare("--address", str(tmp_path / "scheduler.json"))
        assert result.exit_code == 2
        assert "is not a scheduler file" in " ".join(result.stderr.split())


def test_scheduler_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_engine, "CONNECT_SECONDS", 1)
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        result = compare("--address", f"tcp://127.0.0.1:{deaf.getsockname()[1]}")
    assert result.exit_code == 2
    assert "no scheduler answers at tcp://127.0.0.1" in " ".join(result.stderr.split())


def test_cluster_without_workers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_engine, "WORKERS_SECONDS", 0.5)
    with LocalCluster(n_workers=0, dashboard_address=":0") as empty:
        result = compare("--address", empty.scheduler_address)
    assert result.exit_code == 2
    assert "has no worker after 0.5 s" in " ".join(result.stderr.split())


def test_workers_with_another_version_are_refused(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spliter, "__version__", "9.9")
    result = compare("--address", cluster.scheduler_address)
    assert result.exit_code == 2
    assert "this program has 9.9" in " ".join(result.stderr.split())


def test_doctor_shows_backends_and_versions() -> None:
    result = run("doctor")
    assert result.exit_code == 0, result.output
    ready, _, rest = result.stdout.partition("\n")
    usable = [info.name for info in spliter.backends() if info.usable]
    assert ready == f"Ready to use: {', '.join(usable)}"
    words = rest.split()
    assert {"local", "dask", "spliter", "cores", "memory", np.__version__} <= set(words)
    assert {"COMPSS_HOME", "java", "pycompss", "store"} <= set(words)


def test_doctor_says_why_a_backend_is_not_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    infos = [
        BackendInfo("local", True, "", None, "2"),
        BackendInfo("dask", False, "No module named 'distributed'", "dask", None),
    ]
    monkeypatch.setattr(spliter, "backends", lambda: infos)
    result = run("doctor")
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    assert "No module named" in text
    assert '"pyspliter[dask]"' in text
    told = {info["name"]: info for info in json.loads(run("doctor", "--json").stdout)["backends"]}
    assert (told["local"]["usable"], told["dask"]["usable"]) == (True, False)
    assert told["dask"]["advice"].endswith('pip install "pyspliter[dask]"')
    required = run("doctor", "--require", "local,dask")
    assert required.exit_code == 2
    assert "backend 'dask' is required: No module named" in " ".join(required.stderr.split())


def test_doctor_requires_backends_that_are_there() -> None:
    assert run("doctor", "--require", "local,dask").exit_code == 0
    unknown = run("doctor", "--require", "dsk")
    assert unknown.exit_code == 2
    assert "there is no backend 'dsk'" in unknown.stderr


def test_doctor_looks_at_the_workers_of_a_cluster(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run("doctor", "--scheduler", cluster.scheduler_address)
    assert result.exit_code == 0, result.output
    assert cluster.scheduler is not None
    (worker,) = cluster.scheduler.workers
    assert f"{worker} {spliter.__version__} yes" in " ".join(result.stdout.split())
    report = json.loads(run("doctor", "--json", "--scheduler", cluster.scheduler_address).stdout)
    assert report["cluster"] == dict.fromkeys(["scheduler", worker], spliter.__version__)
    monkeypatch.setattr(spliter, "__version__", "9.9")
    other = run("doctor", "--scheduler", cluster.scheduler_address)
    assert other.exit_code == 2
    assert "this program has 9.9" in other.stderr


def user_seconds(process: psutil.Process) -> float:
    """Return the time a process has computed; 0 if it has ended since it was listed."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return float(process.cpu_times().user)
    return 0.0


def wait_until_measuring(process: subprocess.Popen[str], children: int) -> list[psutil.Process]:
    """Return the processes that a command has started once it has all of them."""
    parent = psutil.Process(process.pid)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = parent.children(recursive=True)
        if len(found) >= children and sum(map(user_seconds, found)) > 2.5:
            return found
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    raise AssertionError("the command has not started its processes")


@pytest.mark.parametrize(
    ("to_group", "number", "code"),
    [(True, signal.SIGINT, 130), (False, signal.SIGTERM, -15), (False, signal.SIGKILL, -9)],
)
def test_no_process_is_left_behind(
    to_group: bool, number: signal.Signals, code: int, tmp_path: Path
) -> None:
    command = ["-m", "spliter_experiments", "compare", "histogram", "--rows", "100000"]
    with subprocess.Popen(
        [sys.executable, *command, "--rounds", "100000"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, SOURCE_ROOTS))},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C in a terminal reaches the whole group
    ) as process:
        try:
            # Two workers, two processes of the floor, and multiprocessing's own.
            started = wait_until_measuring(process, children=5)
            if to_group:
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)
            assert process.wait(timeout=30) == code
            _, alive = psutil.wait_procs(started, timeout=30)
            zombies = [child for child in alive if child.status() == psutil.STATUS_ZOMBIE]
            assert [child for child in alive if child not in zombies] == []
        finally:
            process.kill()
