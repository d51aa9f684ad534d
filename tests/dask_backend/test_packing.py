"""Small blocks cross from one worker to another as one message; what cannot be packed, by key."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import dask
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from dask.typing import Key
from distributed import Client, Future, get_worker, wait

from spliter import split
from spliter_backends.dask.worker.fetch import fetch
from spliter_backends.dask.worker.packing import MAX_PACKED_NBYTES
from tests.dask_workers import workers_of

pytestmark = [
    pytest.mark.backend("dask"),
    pytest.mark.feature("peer reads"),
    pytest.mark.timeout(60),
]

RECORD = np.dtype([("x", "f8"), ("y", "<i2", (2,))])


def values(block: int) -> Any:
    return np.arange(3) + 3 * block


PACKED: dict[str, Callable[[int], Any]] = {
    "numbers": values,
    "big-endian": lambda at: values(at).astype(">i4"),
    "times": lambda at: values(at).astype("M8[s]"),
    "records": lambda at: np.full(2, (at, at), RECORD),
    "different": lambda at: np.full((at % 3 + 1, 2), at, ["f4", "u1"][at % 2]),
    "scalars": np.array,
}
BY_KEY: dict[str, Callable[[int], Any]] = {
    "objects": lambda at: values(at).astype(object),
    "sparse": lambda at: scipy.sparse.csr_array(np.eye(3) * at),
    "frames": lambda at: pd.DataFrame({"x": values(at)}),
    "masked": lambda at: np.ma.masked_equal(values(at), 3 * at),
    "fortran": lambda at: np.full((2, 3), at, order="F"),
    "large": lambda at: np.full(MAX_PACKED_NBYTES // 8 + 1, at),
    "empty": lambda at: np.empty(0) if at else np.empty((0, 2)),
}


def make(kind: str, at: int) -> Any:
    """Make one block at a worker."""
    return (PACKED | BY_KEY)[kind](at)


def sent(client: Client, address: str) -> tuple[int, int, int]:
    """Return messages, bytes, and keys of Dask's own messages that a worker has sent to others."""

    async def count(dask_worker: Any) -> tuple[int, int, int]:
        while dask_worker.transfer_outgoing_count:  # it is logged once the receiver has it
            await asyncio.sleep(0.001)
        logged = sum(len(entry["keys"]) for entry in dask_worker.transfer_outgoing_log)
        total = dask_worker.transfer_outgoing_bytes_total
        return dask_worker.transfer_outgoing_count_total, total, logged

    found: tuple[int, int, int] = client.run(count, workers=[address])[address]
    return found


def sent_by(client: Client, address: str, call: Callable[[], Any]) -> tuple[Any, list[int]]:
    """Call a function; return its result and what a worker has sent meanwhile."""
    # The log keeps the last thousand messages: a full one would not grow.
    client.run(lambda dask_worker: dask_worker.transfer_outgoing_log.clear(), workers=[address])
    before = sent(client, address)
    result = call()
    return result, [now - then for now, then in zip(sent(client, address), before, strict=True)]


def blocks_at(client: Client, address: str, *kinds: str, number: int = 20) -> list[Future[Any]]:
    made = [
        client.submit(make, kinds[at % len(kinds)], at, workers=[address], pure=False)
        for at in range(number)
    ]
    wait(made)
    return made


def move(client: Client, futures: Sequence[Future[Any]], origin: str, target: str) -> None:
    """Move blocks to another worker."""
    keys = [future.key for future in futures]

    async def gather(dask_scheduler: Any) -> None:
        await dask_scheduler.gather_on_worker(target, {key: [origin] for key in keys})
        await dask_scheduler.delete_worker_data(origin, keys, "test")

    client.run_on_scheduler(gather)


def described(value: Any) -> tuple[Any, ...]:
    """Return all there is to a value: two equal descriptions are of equal values."""
    if isinstance(value, np.ndarray):
        flags = value.flags.writeable, value.flags.f_contiguous
        return type(value), value.dtype, value.shape, repr(value.tolist()), flags
    dense = value.to_numpy() if isinstance(value, pd.DataFrame) else value.toarray()
    return type(value), dense.tolist()


def describe(partition: Any) -> list[Any]:
    return [described(block) for block in partition]


@pytest.mark.parametrize(
    ("kinds", "messages"),
    [(PACKED, 1), (BY_KEY, 1), (PACKED | BY_KEY, 2)],
    ids=["packed", "by key", "both"],
)
def test_moved_blocks(client: Client, kinds: Collection[str], messages: int) -> None:
    first, second = workers_of(client)
    futures = blocks_at(client, first, *kinds, number=100)
    moved = range(60, 100)
    with split(futures, partitions_per_location=1) as parts:
        (part,) = parts
        move(client, futures[60:], first, second)
        found, counted = sent_by(client, second, lambda: part.submit(describe).result(timeout=30))
        movement = parts.moved
    names = list(kinds)
    blocks = [make(names[at % len(names)], at) for at in range(100)]
    assert found == [described(block) for block in blocks]
    by_key = [at for at in moved if names[at % len(names)] in BY_KEY]
    assert (counted[0], counted[2]) == (messages, len(by_key))
    assert movement.fetched_blocks == len(moved)
    if not by_key:
        nbytes = sum(block.nbytes for block in blocks[60:])
        assert counted[1] == movement.fetched_nbytes == nbytes


def fetched(holders: Mapping[Key, Sequence[str]]) -> tuple[dict[Key, int], int]:
    """Read keys at a worker; return the sum of each array, and how many arrays own their memory."""
    data, _ = fetch(get_worker(), holders, 20)
    own = sum(array.nbytes == array.base.nbytes for array in data.values())
    return {key: int(array.sum()) for key, array in data.items()}, own


@pytest.fixture
def read(client: Client) -> Callable[..., tuple[dict[Key, int], int]]:
    """Read keys at the first worker."""
    return lambda holders: client.submit(
        functools.partial(fetched, holders), workers=[workers_of(client)[0]], pure=False
    ).result(timeout=30)


def test_no_array_keeps_the_message_in_memory(client: Client, read: Any) -> None:
    _, second = workers_of(client)
    futures = blocks_at(client, second, "numbers")
    sums, own = read({future.key: [second] for future in futures})
    assert (len(sums), own) == (20, 20)


def test_missing_keys_and_departed_holders(client: Client, read: Any) -> None:
    """They are left out, not waited for; another holder is read from."""
    _, second = workers_of(client)
    gone = "tcp://127.0.0.1:9"
    futures = blocks_at(client, second, "numbers", number=40)
    holders = {future.key: [gone, second] for future in futures[:20]}
    holders |= {future.key: [second] for future in futures[20:]}
    holders |= {f"unknown-{at}": [second] for at in range(20)}
    holders |= {f"departed-{at}": [gone] for at in range(20)}
    before = client.run(connect_within, "1s")
    try:
        sums, _ = read(holders)
    finally:
        client.run(connect_within, next(iter(before.values())))
    assert sums == {future.key: 9 * at + 3 for at, future in enumerate(futures)}


def connect_within(timeout: str) -> str:
    """Set how long a worker waits for one that does not listen; return how long it did."""
    before: str = dask.config.get("distributed.comm.timeouts.connect")
    dask.config.set({"distributed.comm.timeouts.connect": timeout})
    return before


def fail(*_: Any) -> Any:
    raise ZeroDivisionError("a holder that cannot pack")


def test_a_holder_that_cannot_pack_sends_keys(client: Client, read: Any) -> None:
    _, second = workers_of(client)
    futures = blocks_at(client, second, "numbers")
    holders = {future.key: [second] for future in futures}
    client.run(patch, workers=[second])
    try:
        (sums, _), (messages, _, keys) = sent_by(client, second, lambda: read(holders))
    finally:
        client.run(unpatch, workers=[second])
    assert sums == {future.key: 9 * at + 3 for at, future in enumerate(futures)}
    assert (messages, keys) == (1, 20)


def patch(dask_worker: Any) -> None:
    """Make packing fail at a worker."""
    from spliter_backends.dask.worker import packing

    dask_worker.patched = packing.pack_arrays
    packing.pack_arrays = fail  # type: ignore[assignment]


def unpatch(dask_worker: Any) -> None:
    from spliter_backends.dask.worker import packing

    packing.pack_arrays = dask_worker.patched
