"""What backends keep for a client goes when the client was killed, and only then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np
import pytest

from tests.waiting import wait_until

pytest.importorskip("dataclay")

from spliter import InvalidArgumentError, Location, split
from spliter_backends.dataclay import from_array
from spliter_backends.dataclay.client.connection import LEASE_VARIABLE, lease_seconds
from spliter_backends.dataclay.cluster import EmbeddedDataClay
from spliter_backends.dataclay.executor import current_executor
from spliter_backends.dataclay.worker.leases import TICK, Leases
from tests.conftest import SOURCE_ROOTS
from tests.dataclay_backend import programs
from tests.dataclay_backend.counts import settled, steady, total_over

pytestmark = [pytest.mark.thorough, pytest.mark.backend("dataclay")]

LEASE = 4.0

CLIENT = """
import ctypes, sys
import dataclay
dataclay.Client(host="127.0.0.1", port=int(sys.argv[1])).start()
import numpy as np
from spliter import BlockLostError, split
from spliter_backends.dataclay import from_array
def products(part):
    return int(sum((first * second).sum() for first, second in part))

result = None
for command in sys.stdin:
    answer = ""
    if command == "split\\n":
        x = from_array(np.arange(30), chunks=3, placement="runs")
        y = from_array(np.full(30, 2), chunks=3)
        parts = split(x, y, partitions_per_location=1, materialize=True)
    elif command == "pass\\n":
        answer = sum(part.submit(products).result(60) for part in parts[:])
    elif command == "keep\\n":
        result = parts[0].submit(lambda part: np.ones(100_000))
        answer = result.exception(60)
    elif command == "fetch\\n":
        try:
            answer = result.result(60).sum()
        except BlockLostError:
            answer = "lost"
    elif command == "hold the interpreter\\n":
        ctypes.PyDLL(None).usleep(2_000_000)
    print("answer", answer, flush=True)
"""


class Client:
    """A program with a client of its own, which does what it is told."""

    def __init__(self, cluster: EmbeddedDataClay) -> None:
        roots = os.pathsep.join(map(str, SOURCE_ROOTS))
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", CLIENT, str(cluster.address[1])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": roots, LEASE_VARIABLE: str(LEASE)},
        )

    def __call__(self, command: str) -> str:
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(command + "\n")
        stdin.flush()
        return answer_of(stdout)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=60)


def answer_of(stdout: IO[str]) -> str:
    for line in stdout:
        if line.startswith("answer "):
            return line.removeprefix("answer ").strip()
    raise AssertionError("the client has ended")


@pytest.fixture
def client(cluster: EmbeddedDataClay) -> Iterator[Client]:
    made = Client(cluster)
    yield made
    made.kill()


COUNTS = (programs.kept, programs.leased)


def counted(cluster: EmbeddedDataClay) -> list[int]:
    return [steady(cluster, count) for count in COUNTS]


def wait_for_renewals(cluster: EmbeddedDataClay, more: int) -> None:
    def renewals() -> list[int]:
        submit = current_executor().submit
        asked = [submit(programs.calls_of, ("renew",), {}, Location(str(one))) for one in backends]
        return [future.result(timeout=60) for future in asked]

    backends = cluster.backend_ids
    began = renewals()
    wait_until(lambda: all(np.subtract(renewals(), began) >= more))


PRODUCTS = str(2 * sum(range(30)))


def test_lives_idles_and_is_killed(cluster: EmbeddedDataClay, client: Client) -> None:
    """Kept while it lives, also when it cannot renew for a while; freed after it was killed."""
    before = counted(cluster)
    client("split")
    assert client("pass") == PRODUCTS
    assert client("keep") == "None"
    kept = counted(cluster)
    # Partitions, copies of aligned blocks; blocks put into one, a result.
    assert kept[1] - before[1] > 3
    assert kept[0] - before[0] == 3 + 1
    wait_for_renewals(cluster, 6)  # idle for longer than a lease
    client("hold the interpreter")  # for longer than two renewals
    assert counted(cluster) == kept
    assert client("fetch") == "100000.0"
    assert counted(cluster) == kept
    client.kill()
    for count, wanted in zip(COUNTS, before, strict=True):
        assert settled(cluster, count, wanted)
    # This program has its own.
    assert sum(f.result(60) for f in split(from_array(np.arange(6), 3)).map(programs.total)) == 15


def test_stopped_for_longer_than_its_lease(cluster: EmbeddedDataClay, client: Client) -> None:
    """What it kept is gone, which it says or makes good."""
    before = counted(cluster)
    client("split")
    assert client("pass") == PRODUCTS
    assert client("keep") == "None"
    client.process.send_signal(signal.SIGSTOP)
    for count, wanted in zip(COUNTS, before, strict=True):
        assert settled(cluster, count, wanted)
    client.process.send_signal(signal.SIGCONT)
    assert client("fetch") == "lost"
    assert client("pass") == PRODUCTS
    assert client("keep") == "None"
    assert client("fetch") == "100000.0"


def test_tasks_on_all_threads_do_not_keep_renewals_out(
    cluster: EmbeddedDataClay, tmp_path: Path
) -> None:
    """Renewals are served while every thread of a backend has a task."""
    parts = split(from_array(np.arange(6), 3, backends=cluster.backend_ids[:1]))
    submit = current_executor().submit
    there = parts[0].location
    threads = submit(programs.threads, (), {}, there).result(timeout=60)
    ends = tmp_path / "end"
    busy = [
        submit(programs.wait_for, (tmp_path / str(number), ends), {}, there)
        for number in range(threads)
    ]
    wait_until(lambda: len(list(tmp_path.iterdir())) == threads)
    session = current_executor().session
    peer = session.peer(cluster.backend_ids[0])
    try:
        session.wait(peer.call_handler("renew", session.name, session.lease_seconds), timeout=30)
    finally:
        ends.touch()
    assert [future.result(timeout=60) for future in busy] == [None] * threads


def test_time_in_which_the_backend_stands_still_does_not_count() -> None:
    freed: list[str] = []
    leases = Leases(freed.append)
    leases.renew("a", 1000 * TICK)
    leases.pass_time(1e6)  # stopped, and running again
    assert len(leases) == 1
    for _ in range(1000):
        leases.pass_time(TICK)
    assert freed == ["a"]
    assert len(leases) == 0


def test_freeing_that_fails_is_tried_again() -> None:
    freed: list[str] = []

    def free(client: str) -> None:
        freed.append(client)
        if len(freed) == 1:
            raise ConnectionError("the store is away")

    leases = Leases(free)
    leases.renew("a", TICK)
    leases.pass_time(TICK)
    assert len(leases) == 1
    while len(freed) == 1:
        leases.pass_time(TICK)
    assert len(leases) == 0


@pytest.mark.parametrize("given", ["soon", "0", "-1", "inf", "nan"])
def test_length_that_makes_no_sense(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LEASE_VARIABLE, given)
    with pytest.raises(InvalidArgumentError, match=LEASE_VARIABLE):
        lease_seconds()


def test_one_message_whatever_is_kept(cluster: EmbeddedDataClay) -> None:
    """A client that keeps hundreds of things at a backend has one lease there."""
    x = from_array(np.arange(300), 1, backends=cluster.backend_ids[:1])
    parts = split(x, partitions_per_location=100)
    assert total_over(cluster, programs.leased) >= len(parts) == 100
    assert total_over(cluster, programs.leases) <= 2 * cluster.n_backends
