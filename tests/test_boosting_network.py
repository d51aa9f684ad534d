"""Trainers of XGBoost that wait for others: their ports, and strangers who connect to these.

XGBoost itself opens the ports; what it allows is on docs/security.md.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytest.importorskip("distributed")
pytest.importorskip("xgboost")

import psutil
import xgboost
from distributed import Client, Event

from spliter import split
from spliter_apps.boosting import TrainersMissingError, xgboost_training
from spliter_apps.boosting.xgboost_training import _tracker
from tests.boosting_data import SETTINGS, few_values, free, in_four, train_xgboost
from tests.dask_workers import workers_of

pytestmark = [pytest.mark.thorough, pytest.mark.backend("dask")]

BOUND = 60
"""Seconds that a test waits for a training: many times its ``timeout``, and less than 300."""

Address = tuple[str, int]


@pytest.fixture(scope="module")
def data(client: Client) -> list[Any]:
    """Return points and labels at two workers, which have XGBoost imported."""
    blocks = in_four(client, *few_values())
    train_xgboost(SETTINGS, *blocks, num_boost_round=1)
    return blocks


def listening(pid: int) -> set[Address]:
    """Return where a process listens."""
    connections = psutil.Process(pid).net_connections("tcp")
    return {(each.laddr.ip, each.laddr.port) for each in connections if each.status == "LISTEN"}


class Processes:
    """This process and the workers of a cluster, and where they listen in addition to before."""

    def __init__(self, client: Client) -> None:
        self._pids = {"here": os.getpid(), **client.run(os.getpid)}
        self._before = {name: listening(pid) for name, pid in self._pids.items()}

    def opened(self, name: str) -> set[Address]:
        return listening(self._pids[name]) - self._before[name]


def in_bounds(train: Callable[[], Any]) -> Any:
    """Run a training in a thread, and wait for it within bounds."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(train).result(timeout=BOUND)


class Pause(xgboost.callback.TrainingCallback):
    """Holds each trainer in its second round until the event "go"."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        if epoch == 1:
            Event(f"{self.name}-{xgboost.collective.get_rank()}").set()
            Event(f"{self.name}-go").wait(timeout=BOUND)
        return False


def train_and_act(data: list[Any], timeout: int, act: Callable[[], None]) -> Any:
    """Train, and do something while both trainers are in their second round."""
    pause = Pause(uuid.uuid4().hex)
    options: dict[str, Any] = {"num_boost_round": 5, "timeout": timeout, "callbacks": [pause]}
    with ThreadPoolExecutor(1) as pool:
        training = pool.submit(train_xgboost, SETTINGS, *data, **options)
        try:
            for rank in range(2):
                assert Event(f"{pause.name}-{rank}").wait(timeout=BOUND)
            act()
        finally:
            Event(f"{pause.name}-go").set()
        return training.result(timeout=BOUND)


def test_ports_are_those_that_the_page_on_security_names(client: Client, data: list[Any]) -> None:
    processes, opened = Processes(client), {}

    def look() -> None:
        for name in ("here", *workers_of(client)):
            opened[name] = {address for address, _ in processes.opened(name)}

    assert train_and_act(data, BOUND, look).trainers == 2
    # XGBoost cannot be told where trainers listen. If it can, tell it, and change the page.
    assert opened.pop("here") == {"127.0.0.1"}
    assert list(opened.values()) == [{"0.0.0.0"}] * 2
    for name in ("here", *opened):
        assert not processes.opened(name)


def test_a_silent_stranger_at_the_tracker_costs_the_time_limit(
    client: Client, data: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.ExitStack() as strangers:

        @contextlib.contextmanager
        def tracker(*args: Any) -> Iterator[dict[str, Any]]:
            with _tracker(*args) as joining:
                address = joining["dmlc_tracker_uri"], joining["dmlc_tracker_port"]
                strangers.enter_context(socket.create_connection(address))
                yield joining

        monkeypatch.setattr(xgboost_training, "_tracker", tracker)
        with pytest.raises(TrainersMissingError, match="could not all start within 2 s"):
            in_bounds(lambda: train_xgboost(SETTINGS, *data, timeout=2))
        monkeypatch.undo()
        free(client)
        assert train_xgboost(SETTINGS, *data, num_boost_round=1).trainers == 2


def test_a_silent_stranger_at_the_tracker_during_the_training_costs_no_model(
    client: Client, data: list[Any]
) -> None:
    processes = Processes(client)
    with contextlib.ExitStack() as strangers:

        def connect() -> None:
            (address,) = processes.opened("here")
            strangers.enter_context(socket.create_connection(address))

        trained = train_and_act(data, 5, connect)
        assert trained.booster.num_boosted_rounds() == 5
        assert not processes.opened("here")
    # XGBoost leaves a port open at each worker; it closes when somebody connects and goes.
    for worker in workers_of(client):
        for _, port in processes.opened(worker):
            socket.create_connection(("127.0.0.1", port)).close()
    free(client)
    assert train_xgboost(SETTINGS, *data, num_boost_round=1).trainers == 2


def test_silent_strangers_at_the_ports_of_a_trainer_cost_the_time_limit(
    client: Client, data: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = Processes(client)
    first, second = workers_of(client)
    running, over = Event(), Event()
    with contextlib.ExitStack() as stack:

        def connect() -> None:
            """Connect to both ports of the first trainer; then let the second one start."""
            stack.callback(over.set)
            deadline = time.monotonic() + BOUND
            while len(ports := processes.opened(first)) < 2 and time.monotonic() < deadline:
                time.sleep(0.02)
            for _, port in ports:
                stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            over.set()

        @contextlib.contextmanager
        def tracker(*args: Any) -> Iterator[dict[str, Any]]:
            with _tracker(*args) as joining:
                names = running.name, over.name
                client.submit(block_thread, *names, workers=[second], pure=False)
                assert running.wait(timeout=BOUND)
                connecting = threading.Thread(target=connect)
                connecting.start()
                yield joining
                connecting.join(BOUND)

        monkeypatch.setattr(xgboost_training, "_tracker", tracker)
        with pytest.raises(TrainersMissingError, match="no other program connects"):
            in_bounds(lambda: train_xgboost(SETTINGS, *data, timeout=5))
    monkeypatch.undo()
    free(client)
    assert train_xgboost(SETTINGS, *data, num_boost_round=1).trainers == 2


def block_thread(running: str, over: str) -> None:
    """Hold a worker's thread until told to let go."""
    Event(running).set()
    Event(over).wait(timeout=120)


def test_a_trainer_that_cannot_start_is_waited_for_within_bounds(
    client: Client, data: list[Any]
) -> None:
    points, labels = data
    with split(points, labels) as parts:
        assert parts.moved.blocks == 0  # so that no copy is waited for
        busy = parts.locations[0]
    running, over = Event(), Event()
    blocker = client.submit(block_thread, running.name, over.name, workers=[busy], pure=False)
    assert running.wait(timeout=60)
    try:
        with pytest.raises(TrainersMissingError, match="could not all start within 2 s"):
            train_xgboost(SETTINGS, points, labels, timeout=2)
    finally:
        over.set()
    blocker.result(timeout=60)
    free(client)
