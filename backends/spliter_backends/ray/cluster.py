"""Query Ray for nodes and locations of objects; every wait has a timeout."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import ray
from ray import ObjectRef
from ray.exceptions import GetTimeoutError, ObjectLostError, RayError
from ray.experimental import get_object_locations

from spliter import BackendNotUsableError, BlockLostError, BlockTimeoutError
from spliter.backend import check_process
from spliter_backends._shared.machine import positive_seconds
from spliter_backends._shared.readable import block_nbytes
from spliter_backends.ray.errors import translate_error

TIMEOUT_VARIABLE: Final = "SPLITER_RAY_BLOCK_TIMEOUT"

DEFAULT_TIMEOUT: Final = 300.0

BATCH: Final = 5000
"""Objects per location query; fewer than Ray puts into one message."""

SMALL_NBYTES: Final = 128 * 2**10
"""Maximum bytes of an object outside all stores that is fetched without a further wait. By default
Ray keeps results up to 100 KiB in their owner's memory; of larger ones, the owner may know the size
before the node."""

MEDIUM_NBYTES: Final = 2**20
"""Maximum bytes of an object that may be in its owner's memory with other settings of Ray."""

FETCH_BATCH: Final = 500
"""Number of objects without a store that are fetched per request."""

SHUT_DOWN: Final = (
    "the blocks, or results of tasks, were lost when Ray was shut down; make them again after "
    "ray.init(), and split the new blocks"
)

SHORT_STORE_WAIT: Final = 0.5
STORE_WAIT: Final = 2.0
"""Seconds to wait for medium and for large objects to appear in a store."""


@dataclass(frozen=True)
class ObjectLocation:
    """Location of an object.

    nodes: Nodes whose store has it; empty if it is in its owner's memory.
    spilled: Whether Ray has written it to disk.
    """

    nodes: tuple[str, ...]
    nbytes: int
    spilled: bool = False

    def is_slow_at(self, node: str) -> bool:
        """Return whether reading it at a node brings it into the memory there."""
        return self.spilled or bool(self.nodes and node not in self.nodes)


def block_timeout() -> float:
    """Return the longest wait without progress for pending blocks, in seconds.

    Set by the environment variable ``SPLITER_RAY_BLOCK_TIMEOUT``; 300 s by default.
    """
    return positive_seconds(TIMEOUT_VARIABLE, DEFAULT_TIMEOUT)


_owners: dict[tuple[bytes, bytes], int] = {}
"""Process in which each connection was first used."""


def connection() -> tuple[bytes, bytes]:
    """Return the ids of this process's node and worker, which change with ``ray.init()``.

    A new local cluster has another node; a new connection to the same cluster another worker.
    Raises an error if this process is not connected, is connected by Ray Client, or was forked from
    the one that is.
    """
    if not ray.is_initialized():
        raise BackendNotUsableError("this process is not connected to Ray; call ray.init() first")
    if ray.util.client.ray.is_connected():
        raise BackendNotUsableError(
            "this process is connected by Ray Client (ray://), which cannot locate objects; run "
            "the program on a node of the cluster, for instance with `ray job submit`"
        )
    context = ray.get_runtime_context()
    ids = bytes.fromhex(context.get_node_id()), bytes.fromhex(context.get_worker_id())
    check_process(_owners.setdefault(ids, os.getpid()), "connection to Ray")
    return ids


def check_known(references: Iterable[ObjectRef]) -> None:
    """Check that objects are from the time since ``ray.init()``: Ray may wait forever otherwise."""
    try:
        node, worker = connection()
        others = {
            one: owner
            for one in references
            if node not in (owner := one.owner_address()) or worker not in owner
        }
        if others:  # Ray may know one that it has failed to send to a task, but not its node
            nodes = [bytes.fromhex(each["NodeID"]) for each in ray.nodes()]
            if not all(any(each in owner for each in nodes) for owner in set(others.values())):
                raise BlockLostError(SHUT_DOWN)
            ray.wait(list(others), num_returns=len(others), timeout=0, fetch_local=False)
    except (BackendNotUsableError, ValueError) as error:  # the second: its owner is unknown
        raise BlockLostError(SHUT_DOWN) from error


def usable_nodes() -> dict[str, int]:
    """Return the number of CPUs of each node that is alive and has CPUs."""
    connection()
    return {
        node["NodeID"]: int(node["Resources"]["CPU"])
        for node in ray.nodes()
        if node["Alive"] and node["Resources"].get("CPU", 0) >= 1
    }


def may_wait() -> bool:
    """Return whether this thread may block: it is not the event loop of an asynchronous actor."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return True
    worker: Any = ray._private.worker.global_worker
    return not worker.core_worker.current_actor_is_asyncio()


def wait_created(references: Iterable[ObjectRef]) -> None:
    """Wait until objects are created or their tasks have failed, on any node.

    Raises `BlockTimeoutError` if no object becomes ready for longer than the block timeout.
    """
    pending = list(dict.fromkeys(references))
    timeout = block_timeout()
    while pending:
        done, pending = ray.wait(
            pending, num_returns=len(pending), timeout=timeout, fetch_local=False
        )
        if pending and not done:
            raise BlockTimeoutError(
                f"{len(pending)} blocks are pending, and none became ready in {timeout:g} s; see "
                f"Ray's dashboard for the reason, or raise {TIMEOUT_VARIABLE} (seconds)"
            )


def query_locations(references: Iterable[ObjectRef]) -> Mapping[ObjectRef, ObjectLocation]:
    """Query the owners of created objects for their locations, if they know them."""
    timeout = block_timeout()
    found: dict[ObjectRef, ObjectLocation] = {}
    try:
        for batch in _batches(references):
            answers = get_object_locations(batch, timeout_ms=int(timeout * 1000))
            for reference, answer in answers.items():
                nodes, nbytes = tuple(answer["node_ids"]), answer["object_size"] or 0
                # Ray returns this field without documenting it.
                spilled = bool(answer.get("did_spill"))
                found[reference] = ObjectLocation(nodes, nbytes, spilled)
    except GetTimeoutError as error:
        raise BlockTimeoutError(
            f"the owners of the blocks did not locate them in {timeout:g} s; raise "
            f"{TIMEOUT_VARIABLE} (seconds)"
        ) from error
    return found


def _batches(references: Iterable[ObjectRef]) -> Iterator[list[ObjectRef]]:
    """Divide references into batches, each of one owner.

    For several owners in one query, or more objects than fit one of its messages, Ray may miscount
    fast answers, which ends the process (seen in 2.60).
    """
    by_owner: dict[bytes, list[ObjectRef]] = {}
    for reference in dict.fromkeys(references):
        by_owner.setdefault(reference.owner_address(), []).append(reference)
    for owned in by_owner.values():
        for start in range(0, len(owned), BATCH):
            yield owned[start : start + BATCH]


def locate_objects(
    references: Sequence[ObjectRef], indexes: Sequence[tuple[int, ...]]
) -> Mapping[ObjectRef, ObjectLocation]:
    """Wait for objects and return their locations.

    Raises the error of a task that creates a block, `BlockLostError` if some are lost and Ray
    cannot recreate them, or `BlockTimeoutError` if none becomes ready for longer than the block
    timeout.
    """
    check_known(references)
    wait_created(references)
    found = dict(query_locations(references))
    names = dict(zip(references, indexes, strict=True))
    nowhere = [one for one in names if not (one in found and found[one].nodes)]
    began = time.monotonic()
    pause = 0.005
    while awaited := [
        one for one in nowhere if time.monotonic() < began + _store_wait(found.get(one))
    ]:
        # Recreated after a node died, or its error or its location is not known yet.
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
        wait_created(awaited)
        found.update(query_locations(awaited))
    inside = [one for one in nowhere if not (one in found and found[one].nodes)]
    for start in range(0, len(inside), FETCH_BATCH):
        batch = inside[start : start + FETCH_BATCH]
        values = fetch_objects(batch, [names[one] for one in batch])
        found.update(
            {
                one: ObjectLocation((), block_nbytes(value))
                for one, value in zip(batch, values, strict=True)
            }
        )
    return found


def _store_wait(found: ObjectLocation | None) -> float:
    """Return how many seconds to wait for an object to appear in a store."""
    if found is None:
        return STORE_WAIT
    if found.nodes or found.nbytes <= SMALL_NBYTES:
        return 0.0
    return STORE_WAIT if found.nbytes > MEDIUM_NBYTES else SHORT_STORE_WAIT


def fetch_objects(
    references: Sequence[ObjectRef],
    indexes: Sequence[tuple[int, ...]],
    timeout: float | None = None,
) -> list[Any]:
    """Return blocks, in order, within seconds: by default the block timeout.

    Raises the error of a task that creates a block, `BlockLostError` if some are lost and Ray
    cannot recreate them, or `BlockTimeoutError`.
    """
    seconds = block_timeout() if timeout is None else timeout
    try:
        return list(ray.get(list(references), timeout=seconds))
    except Exception as error:  # noqa: BLE001 -- translated and raised
        named = tuple(dict.fromkeys(indexes))
        if isinstance(error, ObjectLostError) and len(named) > 1:
            named = _lost_indexes(references, indexes) or named
        raise translate_error(error, named, seconds) from None


def _lost_indexes(
    references: Sequence[ObjectRef], indexes: Sequence[tuple[int, ...]]
) -> tuple[tuple[int, ...], ...]:
    """Return the indexes of the lost blocks; the others exist or are pending."""
    lost = []
    for reference, index in zip(references, indexes, strict=True):
        try:
            if ray.wait([reference], timeout=0)[0]:
                ray.get(reference, timeout=0)
        except ObjectLostError:
            lost.append(index)
        except RayError:
            continue
    return tuple(dict.fromkeys(lost))
