"""What the tests of the dataClay backend run at backends, importable there by name."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from dataclay import event_loop
from dataclay.backend.api import BackendAPI
from dataclay.config import get_runtime, settings
from dataclay.data_manager import DataManager
from dataclay.exceptions import DataClayException

from spliter import Partition
from spliter._reading.read_ahead import _abandoned, wait_for_abandoned, window_of
from spliter_backends.dataclay.objects import Block
from spliter_backends.dataclay.worker import tasks
from spliter_backends.dataclay.worker.source import on_loop

_received: Counter[str] = Counter()


def count_received() -> int:
    """Return how many messages with blocks from elsewhere this backend has taken so far.

    Counting begins with the first call: dataClay's own moves, and copies that SplIter brings.
    """
    if not _received:
        _received["since"] = 0
        register, adopt = BackendAPI.register_objects, tasks.HANDLERS["create_copy"]

        async def counted_register(self: Any, *args: Any, **kwargs: Any) -> None:
            _received["registered"] += 1
            await register(self, *args, **kwargs)

        def counted_adopt(transfer: str) -> Any:
            _received["adopted"] += 1
            return adopt(transfer)

        BackendAPI.register_objects = counted_register
        tasks.HANDLERS["create_copy"] = counted_adopt
    return _received.total()


def here(_: Partition) -> str:
    return str(get_runtime().backend_id)


def total(partition: Partition) -> int:
    return sum(int(block.sum()) for block in partition)


def announced_total(partition: Partition, folder: Path) -> int:
    """Sum of all items; after each block makes a file of its location, and waits for "go on"."""
    result = 0
    for block in partition:
        result += int(block.sum())
        wait_for(folder / str(partition.location), folder / "go on")
    return result


def slow_total(partition: Partition, seconds: float) -> int:
    """Sum of all items, resting before each block."""
    result = 0
    for block in partition:
        time.sleep(seconds)
        result += int(block.sum())
    return result


def totals_of_objects(partition: Partition) -> int:
    """Sum over objects that are blocks themselves, by their attribute and their method."""
    return sum(int(it.values.sum()) + it.total() for it in partition)


def addresses(partition: Partition) -> list[int]:
    """Return where the blocks' elements are in memory."""
    return [int(block.__array_interface__["data"][0]) for block in partition]


def read(
    partition: Partition, lost: uuid.UUID | None = None
) -> tuple[list[int], int, int | None, str]:
    """Return the sums of the blocks, how many were loaded, how many ahead, and the error.

    The file of one block may be removed before.
    """
    load, loaded, error = DataManager.load_object, [], ""
    found: list[int] = []

    async def counted(self: Any, instance: Any) -> None:
        if isinstance(instance, Block):  # partition objects of earlier loops are freed meanwhile
            loaded.append(instance)
        await load(self, instance)

    if lost is not None:
        Path(settings.storage_path, str(lost)).unlink()
    DataManager.load_object = counted
    try:
        blocks: Any = iter(partition)
        found.extend(int(block.sum()) for block in blocks)
    except DataClayException as raised:
        error = type(raised).__name__
    finally:
        DataManager.load_object = load
    return found, len(loaded), getattr(blocks._blocks, "deepest", None), error


def ahead_as_memory_fills(partition: Partition, room: int) -> tuple[list[int], list[int]]:
    """Return the sums of the blocks, and how many reads were ahead after each.

    For the first blocks memory is below dataClay's limit, then it is above.
    """
    manager, before = get_runtime().data_manager, settings.memory_threshold_high
    on_loop(manager.memory_lock.acquire())  # dataClay itself would write objects to disk
    sums, ahead = [], []
    try:
        blocks: Any = iter(partition)
        for number in range(len(partition)):
            settings.memory_threshold_high = 1.0 if number < room else 0.0
            sums.append(int(next(blocks).sum()))
            ahead.append(len(blocks._blocks._begun))
    finally:
        settings.memory_threshold_high = before
        manager.memory_lock.release()
    return sums, ahead


def leave_early(partition: Partition, after: int) -> tuple[int, int]:
    """Leave a loop after some blocks; return the bytes and the reads that are left of it."""
    window = window_of(str(partition.location))
    for number, _ in enumerate(partition):
        assert window.nbytes
        if number == after:
            break
    wait_for_abandoned(partition.token)
    return window.nbytes, len(_abandoned)


def products(partition: Partition) -> int:
    """Sum of products of aligned pairs."""
    return sum(int((first * second).sum()) for first, second in partition)


def ones(_: Partition, length: int) -> npt.NDArray[np.float64]:
    """Return an array of this process, and no other: not data of the partition."""
    return np.ones(length)


def identity(value: Any) -> int:
    """Return which object of its process a value is."""
    return id(value)


def kept() -> int:
    """Return how many things this backend keeps for clients."""
    return int(tasks.HANDLERS["kept"]())


def threads() -> int:
    """Return how many active methods this backend runs at once."""
    return int(event_loop.io_bound_executor._max_workers)


def wait_for(started: Path, ended: Path) -> None:
    """Make a file, and wait until there is another one."""
    started.touch()
    while not ended.exists():
        time.sleep(0.01)


def leased() -> int:
    """Return how many partition objects and copies of blocks this backend keeps for clients."""
    return len(tasks._objects)


def leases() -> int:
    """Return how many clients have a lease at this backend."""
    return len(tasks.LEASES)


def objects() -> int:
    """Return how many persistent objects this backend has in memory."""
    return len(get_runtime().data_manager.loaded_objects)


def process() -> int:
    return os.getpid()


class TwoPartError(Exception):
    """Cannot be unpickled: pickle calls it with one argument."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} {second}")


def raise_two_parts(_: Partition) -> None:
    """Raise an error that cannot be unpickled."""
    raise TwoPartError("one", "two")


def raise_with_lock(_: Partition) -> None:
    """Raise an error that cannot be pickled."""
    raise ValueError("locked", threading.Lock())


def raise_caused(_: Partition) -> None:
    try:
        raise KeyError("deep")
    except KeyError as error:
        raise ValueError("shallow") from error


def leave(_: Partition) -> None:
    """End the program, or so it thinks."""
    sys.exit(3)


def interrupt(_: Partition) -> None:
    """Raise what is no ``Exception``."""
    raise KeyboardInterrupt


def die(_: Partition) -> None:
    """End the process without any clean-up."""
    os.kill(os.getpid(), signal.SIGKILL)


def lock(_: Partition) -> Any:
    """Return what cannot be pickled."""
    return threading.Lock()


def array_and_lock(_: Partition) -> Any:
    """Return what is too large to come with the reply, and cannot be pickled."""
    return np.ones(100_000), threading.Lock()


_raised: Counter[str] = Counter()


def raise_as_the_engine(_: Partition, kind: type[Exception], *args: Any) -> None:
    """Raise an error of dataClay's or gRPC's, and count it."""
    _raised[kind.__name__] += 1
    raise kind(*args)


def times_raised(name: str) -> int:
    """Return how often this backend has raised an error so far."""
    return _raised[name]


def zeros(_: tuple[int, ...], shape: tuple[int, ...], dtype: Any) -> npt.NDArray[Any]:
    """Make a block that takes no memory until it is written to."""
    return np.zeros(shape, dtype)


def ends(partition: Partition) -> list[tuple[int, int]]:
    """Return the length and the last item of each block."""
    return [(len(block), int(block[-1])) for block in partition]


def sum_of(_: Partition, value: Any) -> float:
    return float(np.sum(value))


def kinds(partition: Partition) -> list[str]:
    return [type(block).__name__ for block in partition]


def numbered(index: tuple[int, ...], shape: tuple[int, ...], step: int) -> npt.NDArray[Any]:
    """Make a block of the number of its place."""
    row, column = index
    return np.full(shape, row * step + column)


_calls: Counter[str] = Counter()


def _count_calls() -> None:
    call, locate = BackendAPI.call_active_method, tasks.HANDLERS["locate"]

    async def counted_call(
        self: Any, object_id: Any, method: str, *args: Any, **kwargs: Any
    ) -> Any:
        _calls[method] += 1
        return await call(self, object_id, method, *args, **kwargs)

    def counted_locate(object_ids: bytes) -> bytes:
        _calls["locate"] += 1
        return bytes(locate(object_ids))

    BackendAPI.call_active_method = counted_call
    tasks.HANDLERS["locate"] = counted_locate


def calls_of(what: str) -> int:
    """Return how many tasks, or questions, this backend was called for since the first call."""
    if not _calls:
        _calls["since"] = 1
        _count_calls()
    return _calls[what]


def task_calls() -> int:
    """Return how many tasks this backend has been called for."""
    return calls_of("run")


def locate_calls() -> int:
    """Return how often this backend has been asked where objects are."""
    return calls_of("locate")


def pause(_: Partition) -> int:
    """Stop the process, as a machine that is out of memory may; it is woken from outside."""
    os.kill(os.getpid(), signal.SIGSTOP)
    return 1


def looked_up(partition: Partition, source: Any) -> tuple[list[list[Any]], list[int]]:
    """Return the records of each block, and the number of keys of each request."""
    requests: list[int] = []

    class Counting(type(source)):  # type: ignore[misc]
        def get_many(self, keys: Any) -> list[Any]:
            requests.append(len(keys))
            return list(super().get_many(keys))

    counting = Counting(**vars(source))
    found = partition.lookup(counting, lambda block: block)
    return [records for _, records in found], requests
