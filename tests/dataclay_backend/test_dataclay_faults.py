"""Backends that die, tasks that end badly, data that does not fit: typed errors, never a hang."""

from __future__ import annotations

import os
import signal
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("dataclay")

from dataclay.exceptions import (
    DataClayException,
    ObjectNotFound,
    ObjectWithWrongBackendIdError,
)

from spliter import (
    BlockLostError,
    InvalidArgumentError,
    Location,
    Partition,
    Split,
    SplIterError,
    TaskFailedError,
    TaskNotSerializableError,
    reduce,
    split,
)
from spliter_backends.dataclay import DataClayArray, from_array, generate
from spliter_backends.dataclay.client.backend_calls import ObjectMissingError
from spliter_backends.dataclay.cluster import EmbeddedDataClay
from spliter_backends.dataclay.executor import current_executor
from tests.dataclay_backend import programs
from tests.dataclay_backend.classes import Broken, calls_of_broken
from tests.waiting import wait_until_made

pytestmark = [pytest.mark.thorough, pytest.mark.backend("dataclay")]

SOON = 5.0
"""Seconds by which a lost backend has to be told."""

LENGTH = 60


@pytest.fixture
def three(cluster: EmbeddedDataClay) -> tuple[uuid.UUID, ...]:
    """Three backends that are alive: those killed by earlier tests have been replaced."""
    session = current_executor().session
    alive = session.wait(session.backend_ids())
    return tuple(one for one in cluster.backend_ids if one in alive)


def put(backends: tuple[uuid.UUID, ...]) -> DataClayArray:
    return from_array(np.arange(LENGTH), chunks=10, backends=backends)


def by_location(parts: Split, backend: uuid.UUID) -> list[Partition]:
    return [part for part in parts if part.location == str(backend)]


def kill(cluster: EmbeddedDataClay, backend: uuid.UUID) -> None:
    """Kill a backend; another one takes its place for the tests to come."""
    cluster.kill(cluster.backend_ids.index(backend))
    cluster.add()


def check_lost_and_others_unharmed(parts: Split, victim: uuid.UUID) -> None:
    for part in parts[:]:  # an iteration would plan again, and refuse
        future = part.submit(programs.total)
        if part.location == str(victim):
            with pytest.raises(BlockLostError) as lost:
                future.result(timeout=SOON)
            assert set(lost.value.blocks) == set(part.get_indexes())
        else:
            items = part.get_item_indexes()
            assert future.result(timeout=60) == items.sum()


def test_killed_before_the_first_pass(
    cluster: EmbeddedDataClay, three: tuple[uuid.UUID, ...]
) -> None:
    x = put(three)
    parts = split(x)
    kill(cluster, three[1])
    check_lost_and_others_unharmed(parts, three[1])
    # A new Split of what is lost is refused, one of what is left works.
    with pytest.raises(BlockLostError) as lost:
        split(x)
    assert lost.value.blocks == ((1,), (4,))
    left = [block for at, block in enumerate(x.blocks) if at % 3 != 1]
    expected = sum(range(LENGTH)) - sum(range(10, 20)) - sum(range(40, 50))
    assert sum(f.result(timeout=60) for f in split(left).map(programs.total)) == expected


def test_killed_during_a_pass(
    cluster: EmbeddedDataClay, three: tuple[uuid.UUID, ...], tmp_path: Path
) -> None:
    parts = split(put(three))
    futures = [(part, part.submit(programs.announced_total, tmp_path)) for part in parts]
    wait_until_made(tmp_path / str(three[0]))
    cluster.kill(cluster.backend_ids.index(three[0]))
    (tmp_path / "go on").touch()
    for part, future in futures:
        if part.location == str(three[0]):
            with pytest.raises(BlockLostError):
                future.result(timeout=SOON)
    for part, future in futures:
        if part.location != str(three[0]):
            assert future.result(timeout=60) == part.get_item_indexes().sum()
    cluster.add()


def test_killed_by_the_task(cluster: EmbeddedDataClay, three: tuple[uuid.UUID, ...]) -> None:
    parts = split(put(three))
    victim = by_location(parts, three[2])[0]
    with pytest.raises(BlockLostError):
        victim.submit(programs.die).result(timeout=SOON)
    check_lost_and_others_unharmed(parts, three[2])
    cluster.add()


def test_killed_between_passes(cluster: EmbeddedDataClay, three: tuple[uuid.UUID, ...]) -> None:
    parts = split(put(three))
    futures = parts.map(programs.total)
    kept = {part.location: part.submit(programs.ones, 100_000) for part in parts}
    assert sum(future.result(timeout=60) for future in futures) == sum(range(LENGTH))
    for future in kept.values():
        future.exception(timeout=60)
    kill(cluster, three[0])
    check_lost_and_others_unharmed(parts, three[0])
    # Small results are here already, also those of the backend that is gone.
    assert reduce(int.__add__, futures).result(timeout=60) == sum(range(LENGTH))
    # A large one was kept there; nobody had asked for it.
    for location, future in kept.items():
        if location == str(three[0]):
            with pytest.raises(BlockLostError, match="run it again"):
                future.result(timeout=SOON)
        else:
            assert future.result(timeout=60).sum() == 100_000
    # The Split plans again, and says which blocks are gone.
    with pytest.raises(BlockLostError):
        list(parts)


def test_collection_whose_backend_is_lost(
    cluster: EmbeddedDataClay, three: tuple[uuid.UUID, ...]
) -> None:
    backends = three[:2]
    x = from_array(np.arange(8), chunks=2, backends=backends)
    np.testing.assert_array_equal(x.compute(), np.arange(8))
    dead = backends[-1]
    lost = tuple((at,) for at, place in enumerate(x.locations()) if place == str(dead))
    kill(cluster, dead)
    with pytest.raises(BlockLostError) as raised:
        x.compute()
    assert len(lost) == 2
    assert raised.value.blocks == lost
    x.delete()  # what is left
    with pytest.raises(BlockLostError):
        x.compute()


def test_blocks_moved_away_before_their_backend_is_killed(
    cluster: EmbeddedDataClay, three: tuple[uuid.UUID, ...]
) -> None:
    x = put(three)
    parts = split(x)
    for block in x.blocks[0::3]:
        block.move(three[1])
    kill(cluster, three[0])
    assert sum(f.result(timeout=60) for f in parts.map(programs.total)) == sum(range(LENGTH))
    assert set(map(str, x.locations())) == set(map(str, three[1:]))


def test_silent_backend_is_waited_for(
    cluster: EmbeddedDataClay, three: tuple[uuid.UUID, ...]
) -> None:
    partition = by_location(split(put(three)), three[0])[0]
    process = submitted_at(partition, programs.process).result(timeout=60)
    future = partition.submit(programs.pause)
    with pytest.raises(TimeoutError):
        future.result(timeout=SOON)  # looked at several times meanwhile
    os.kill(process, signal.SIGCONT)
    assert future.result(timeout=60) == 1


def test_silent_backend_is_not_waited_for_for_ever(
    cluster: EmbeddedDataClay, three: tuple[uuid.UUID, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spliter_backends.dataclay.client.backend_calls.MAX_SILENCE_SECONDS", 0.1)
    partition = by_location(split(put(three)), three[0])[0]
    process = submitted_at(partition, programs.process).result(timeout=60)
    future = partition.submit(programs.pause)
    try:
        with pytest.raises(BlockLostError, match="silent"):
            future.result(timeout=60)
    finally:
        os.kill(process, signal.SIGCONT)


def submitted_at(partition: Partition, fn: Any, *args: Any) -> Any:
    """Submit a function where a partition is, without it."""
    assert partition.executor is not None
    return partition.executor.submit(fn, args, {}, partition.location)


class TestTasksThatEndBadly:
    """The backend lives on, and so do the other tasks."""

    @pytest.fixture
    def partition(self, three: tuple[uuid.UUID, ...]) -> Partition:
        return split(from_array(np.arange(5), backends=three[:1]), partitions_per_location=1)[0]

    @pytest.mark.parametrize(
        ("task", "kind", "told"),
        [
            (programs.leave, TaskFailedError, "sys.exit\\(3\\)"),
            (programs.interrupt, TaskFailedError, "KeyboardInterrupt"),
            (programs.raise_two_parts, TaskFailedError, "TwoPartError: one two"),
            (programs.raise_with_lock, TaskFailedError, "raise_with_lock"),
            (programs.lock, TaskNotSerializableError, "lock"),
            (programs.array_and_lock, TaskNotSerializableError, "tuple.*lock"),
        ],
    )
    def test_told_and_survived(
        self, partition: Partition, task: Any, kind: type[Exception], told: str
    ) -> None:
        before = submitted_at(partition, programs.process)
        with pytest.raises(kind, match=told):
            partition.submit(task).result(timeout=60)
        assert partition.submit(programs.total).result(timeout=60) == 10
        after = submitted_at(partition, programs.process)
        assert before.result(timeout=60) == after.result(timeout=60)

    def test_cause_comes_along(self, partition: Partition) -> None:
        with pytest.raises(ValueError, match="shallow") as raised:
            partition.submit(programs.raise_caused).result(timeout=60)
        assert isinstance(raised.value.__cause__, KeyError)

    @pytest.mark.parametrize(
        ("kind", "args"),
        [
            (DataClayException, ("Stream removed",)),
            (ObjectNotFound, (uuid.UUID(int=1),)),
            (ObjectWithWrongBackendIdError, (uuid.UUID(int=1), set())),
            (ObjectMissingError, ()),
            (BlockLostError, ("the object does not exist",)),
        ],
    )
    def test_error_that_looks_like_the_engines(
        self, partition: Partition, kind: type[Exception], args: tuple[Any, ...]
    ) -> None:
        """It is the task's: told as it is, and the task runs once."""
        before = submitted_at(partition, programs.times_raised, kind.__name__).result(60)
        with pytest.raises(kind) as raised:
            partition.submit(programs.raise_as_the_engine, kind, *args).result(timeout=60)
        assert raised.type is kind
        after = submitted_at(partition, programs.times_raised, kind.__name__).result(60)
        assert after - before == 1

    def test_block_that_cannot_be_told(self, three: tuple[uuid.UUID, ...]) -> None:
        """An error of a class's own ``spliter_block`` is not dataClay's: it is called once."""
        broken = Broken(np.arange(3))
        broken.make_persistent(backend_id=three[0])
        (partition,) = split([broken])
        before = submitted_at(partition, calls_of_broken).result(60)
        with pytest.raises(AttributeError, match="_dc_property_values"):
            partition.submit(programs.total).result(timeout=60)
        assert submitted_at(partition, calls_of_broken).result(60) - before == 1

    def test_function_that_cannot_be_imported_there(self, partition: Partition) -> None:
        def local(_: Partition) -> None: ...

        local.__module__, local.__qualname__ = "tests.dataclay_backend.programs", "vanishing"
        programs.vanishing = local  # type: ignore[attr-defined]
        try:
            future = partition.submit(local)
        finally:
            del programs.vanishing  # type: ignore[attr-defined]
        with pytest.raises(TaskNotSerializableError, match="cannot be unpickled at backend"):
            future.result(timeout=60)


class TestWhatDoesNotFit:
    """gRPC loses messages of 2 GiB without a word."""

    def test_block_is_refused_and_nothing_lost(self, three: tuple[uuid.UUID, ...]) -> None:
        small = put(three)
        huge = np.zeros(2_200_000_000, dtype=np.uint8)
        with pytest.raises(InvalidArgumentError, match="Nothing has been sent"):
            from_array(huge, chunks=len(huge), backends=three)
        assert sum(f.result(timeout=60) for f in split(small).map(programs.total)) == 1770

    def test_argument_is_refused(self, three: tuple[uuid.UUID, ...]) -> None:
        huge = np.zeros(2_200_000_000, dtype=np.uint8)
        partition = split(put(three))[0]
        with pytest.raises(TaskNotSerializableError, match="2 GiB"):
            partition.submit(len, huge)
        assert partition.submit(len).result(timeout=60) == len(partition)

    def test_block_made_at_the_backend_may_be_larger(self, three: tuple[uuid.UUID, ...]) -> None:
        x = generate(programs.zeros, [(2_200_000_000,)], np.uint8, backends=three[:1])
        assert x.nbytes == 2_200_000_000
        (partition,) = split(x)
        assert partition.submit(programs.ends).result(timeout=60) == [(2_200_000_000, 0)]
        x.delete()


def test_results_of_any_size_come_in_pieces(
    three: tuple[uuid.UUID, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spliter_backends.dataclay.client.backend_calls.CHUNK_NBYTES", 100_000)
    partition = split(put(three))[0]
    result = partition.submit(programs.ones, 123_456).result(timeout=60)
    assert result.shape == (123_456,)
    assert result.all()
    result += 1  # it is the program's own


def test_futures_of_locations_that_are_unknown(three: tuple[uuid.UUID, ...]) -> None:
    executor = split(put(three))[0].executor
    assert executor is not None
    nowhere = Location(str(uuid.uuid4()))
    # Nothing that the task needs has to be there, so it runs elsewhere.
    assert executor.submit(len, ([1, 2],), {}, nowhere).result(timeout=SOON) == 2


def test_client_stopped_while_tasks_run(
    cluster: EmbeddedDataClay, three: tuple[uuid.UUID, ...], tmp_path: Path
) -> None:
    """The last test: the cluster's client is gone afterwards."""
    parts = split(put(three))
    futures = parts.map(programs.announced_total, tmp_path)
    wait_until_made(tmp_path / str(three[0]))
    cluster.client().stop()
    for future in futures:
        with pytest.raises(SplIterError):
            future.result(timeout=20)
    with pytest.raises(SplIterError):
        parts[0].submit(programs.total).result(timeout=20)
    (tmp_path / "go on").touch()
