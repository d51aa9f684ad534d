"""The ``spliter`` command on dataClay: an embedded one, a running one, and none."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

pytest.importorskip("spliter_backends.dataclay", exc_type=ImportError)

from typer.testing import CliRunner, Result

import spliter
from spliter_backends.dataclay.cluster import EmbeddedDataClay
from spliter_experiments.cli import app
from spliter_experiments.compare.engines import dataclay_engine
from spliter_experiments.harness.records import ResultsFolder
from tests.conftest import SOURCE_ROOTS

pytestmark = [pytest.mark.thorough, pytest.mark.backend("dataclay")]

APPS = {
    "histogram": ["--dims", "2", "--bins", "4", "--rows", "3000"],
    "knn": ["--neighbors", "2", "--queries", "30", "--dims", "3", "--rows", "600"],
}


def compare(app_name: str, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["compare", app_name, "--backend", "dataclay", *arguments])


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The user's own dataClay: three backends of one thread; nobody here is connected to it."""
    with EmbeddedDataClay(3, threads=1) as cluster:
        host, port = cluster.address
        yield f"{host}:{port}"


@pytest.mark.parametrize("app_name", APPS)
def test_every_way_on_a_running_dataclay(app_name: str, address: str, tmp_path: Path) -> None:
    result = compare(
        app_name, "--address", address, *APPS[app_name],
        "--blocks-per-core", "3", "--rounds", "1", "--output", str(tmp_path),
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    records = ResultsFolder(tmp_path).records()
    ways = {run.way for run in records}
    assert {"spliter", "per-block", "floor"} <= ways
    assert not {"rechunk-p2p", "rechunk-tasks", "dask"} & ways
    (settings,) = ResultsFolder(tmp_path).plans()
    assert (settings["backend"], settings["cluster"]) == ("dataclay", address)
    assert (settings["workers"], settings["cores"]) == (3, 3)
    assert {(run.app, run.blocks) for run in records} == {(app_name, 9)}
    assert "dataclay: 3 workers" in result.stdout
    assert (tmp_path / f"{app_name}.svg").exists()


def test_embedded_dataclay_and_nothing_of_its_own_on_the_terminal(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "spliter_experiments", "compare", "histogram"]
    options = ["--backend", "dataclay", "--workers", "3", *APPS["histogram"]]
    done = subprocess.run(
        [*command, *options, "--sweep", "1,4", "--rounds", "2"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, SOURCE_ROOTS))},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.startswith("histogram of generated points")
    assert "event loop" not in done.stdout


def test_backends_with_another_version_are_refused(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spliter, "__version__", "9.9")
    result = compare("sum", "--address", address)
    assert result.exit_code == 2
    assert "there is no spliter 9.9 everywhere" in " ".join(result.stderr.split())


def test_nobody_answers_at_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataclay_engine, "CONNECT_SECONDS", 1)
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        result = compare("sum", "--address", f"127.0.0.1:{deaf.getsockname()[1]}")
    assert result.exit_code == 2
    assert "no metadata service of dataClay answers at 127.0.0.1" in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--address", "somewhere"], "--address takes HOST:PORT"),
        (["--placement", "dask"], "--placement dask is none of dataclay's"),
        (["--ways", "rechunk-p2p"], "no way 'rechunk-p2p'; the ways are spliter, per-block, floor"),
    ],
)
def test_what_cannot_be_done_ends_with_2_and_says_why(arguments: list[str], complaint: str) -> None:
    result = compare("sum", *arguments)
    assert result.exit_code == 2, result.output
    assert complaint in " ".join(result.stderr.split())


def test_store_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spliter_backends._shared.redis_store.find_store", lambda: None)
    result = compare("sum")
    assert result.exit_code == 2
    assert "there is no key-value store for dataClay" in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("to_group", "number", "code"), [(True, signal.SIGINT, 130), (False, signal.SIGKILL, -9)]
)
def test_no_process_is_left_behind(
    to_group: bool, number: signal.Signals, code: int, tmp_path: Path
) -> None:
    command = ["-m", "spliter_experiments", "compare", "sum", "--backend", "dataclay"]
    with subprocess.Popen(
        [sys.executable, *command, "--rows", "1000", "--rounds", "100000"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, SOURCE_ROOTS))},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C in a terminal reaches the whole group
    ) as process:
        try:
            started = until_measuring(process)
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


def until_measuring(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Return the processes that a command has started once it has measured for a while."""
    parent = psutil.Process(process.pid)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = parent.children(recursive=True)
        # Guard, store, metadata service, two backends, two processes of the floor at least.
        if len(found) >= 7 and parent.cpu_times().user > 4:
            return found
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    raise AssertionError("the command has not started its processes")
