"""What is asked of Ray: which nodes there are, where objects are; each wait has a bound."""

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

from spliter import BackendNotUsableError, BlockTimeoutError, InvalidArgumentError
from spliter_backends._shared.opened import block_nbytes
from spliter_backends.ray.errors import told

TIMEOUT_VARIABLE: Final = "SPLITER_RAY_BLOCK_TIMEOUT"

DEFAULT_TIMEOUT: Final = 300.0

BATCH: Final = 5000
"""Objects whose places are asked for at once: fewer than Ray puts into one message."""

SMALL: Final = 128 * 2**10
"""Bytes up to which an object that is in no store is looked at here without further ado. Ray keeps
results up to 100 KiB in their owner's memory unless told otherwise; of larger ones the owner may
know that they are made, and how large, before it hears where."""

MEDIUM: Final = 2**20
"""Bytes up to which an object may well be in its owner's memory, if Ray has been told otherwise."""

LOOKED_AT: Final = 500
"""How many of them are looked at at once."""

SHORT_GRACE: Final = 0.5
GRACE: Final = 2.0
"""Seconds in which a medium object that is in no store, and a large one, may turn up in one."""


@dataclass(frozen=True)
class Found:
    """Where an object is.

    Parameters
    ----------
    nodes : tuple of str
        Nodes whose store has it; none if it is in its owner's memory.
    nbytes : int
        Its size.
    """

    nodes: tuple[str, ...]
    nbytes: int


def block_timeout() -> float:
    """Return the environment variable ``SPLITER_RAY_BLOCK_TIMEOUT`` in seconds.

    The longest wait for blocks of which none gets ready; 300 s unless set.

    Returns
    -------
    float

    Raises
    ------
    InvalidArgumentError
        If it is no number above 0.

    Examples
    --------
    >>> block_timeout()
    300.0
    """
    given = os.environ.get(TIMEOUT_VARIABLE, "")
    try:
        seconds = float(given) if given else DEFAULT_TIMEOUT
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise InvalidArgumentError(
            f"{TIMEOUT_VARIABLE} must be a number of seconds above 0, got {given!r}"
        )
    return seconds


def connection() -> str:
    """Return what identifies this process' connection to a cluster.

    Returns
    -------
    str
        Another one after ``ray.shutdown()`` and ``ray.init()``.

    Raises
    ------
    BackendNotUsableError
        If this process is not connected, or is a client of another one that is.
    """
    if not ray.is_initialized():
        raise BackendNotUsableError("this process is not connected to Ray: call ray.init() first")
    if ray.util.client.ray.is_connected():
        raise BackendNotUsableError(
            "this process is connected by Ray Client (ray://), which cannot be asked where objects "
            "are; run the program on a node of the cluster, as with `ray job submit`"
        )
    name: str = ray.get_runtime_context().get_worker_id()
    return name


def usable_nodes() -> dict[str, int]:
    """Return the nodes that can run tasks.

    Returns
    -------
    dict of str to int
        For each that is alive and has CPUs, how many.
    """
    return {
        node["NodeID"]: int(node["Resources"]["CPU"])
        for node in ray.nodes()
        if node["Alive"] and node["Resources"].get("CPU", 0) >= 1
    }


def may_wait() -> bool:
    """Whether this thread may wait: it is not the event loop of an asynchronous actor."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return True
    worker: Any = ray._private.worker.global_worker
    return not worker.core_worker.current_actor_is_asyncio()


def wait_made(references: Iterable[ObjectRef]) -> None:
    """Wait until objects have been made (or their making has failed), wherever they are.

    Raises
    ------
    BlockTimeoutError
        If none gets ready for longer than the block timeout.
    """
    pending = list(dict.fromkeys(references))
    timeout = block_timeout()
    while pending:
        done, pending = ray.wait(
            pending, num_returns=len(pending), timeout=timeout, fetch_local=False
        )
        if pending and not done:
            raise BlockTimeoutError(
                f"{len(pending)} blocks are being made, and none got ready in {timeout:g} s; the "
                f"limit is the environment variable {TIMEOUT_VARIABLE}, in seconds"
            )


def places_of(references: Iterable[ObjectRef]) -> Mapping[ObjectRef, Found]:
    """Ask the owners of objects where these are.

    Parameters
    ----------
    references : iterable of ObjectRef
        Of objects that have been made.

    Returns
    -------
    mapping of ObjectRef to Found
        Of all of them but those that the owner does not know of.

    Raises
    ------
    BlockTimeoutError
        If owners do not answer.
    """
    timeout = block_timeout()
    found: dict[ObjectRef, Found] = {}
    try:
        for batch in _batches(references):
            answers = get_object_locations(batch, timeout_ms=int(timeout * 1000))
            for reference, answer in answers.items():
                found[reference] = Found(tuple(answer["node_ids"]), answer["object_size"] or 0)
    except GetTimeoutError as error:
        raise BlockTimeoutError(
            f"those who made the blocks did not say in {timeout:g} s where they are"
        ) from error
    return found


def _batches(references: Iterable[ObjectRef]) -> Iterator[list[ObjectRef]]:
    """Cut references into batches, each of one owner's.

    Asked about those of several owners at once, or about more than go into one message of its own,
    Ray miscounts the answers when they come quickly, which ends the process (seen in 2.60).
    """
    by_owner: dict[bytes, list[ObjectRef]] = {}
    for reference in dict.fromkeys(references):
        by_owner.setdefault(reference.owner_address(), []).append(reference)
    for owned in by_owner.values():
        for start in range(0, len(owned), BATCH):
            yield owned[start : start + BATCH]


def located(
    references: Sequence[ObjectRef], indexes: Sequence[tuple[int, ...]]
) -> Mapping[ObjectRef, Found]:
    """Wait for objects and return where each is.

    Parameters
    ----------
    references : sequence of ObjectRef
        Of blocks.
    indexes : sequence of tuple of int, same length
        What to call them in errors.

    Returns
    -------
    mapping of ObjectRef to Found
        All of them.

    Raises
    ------
    BlockLostError
        If some are gone for good.
    BlockTimeoutError
        If some do not get ready.
    BaseException
        What the task raised that was to make one.
    """
    wait_made(references)
    found = dict(places_of(references))
    names = dict(zip(references, indexes, strict=True))
    nowhere = [one for one in names if not (one in found and found[one].nodes)]
    began = time.monotonic()
    pause = 0.005
    while awaited := [one for one in nowhere if time.monotonic() < began + _grace(found.get(one))]:
        # Being made again after a node died, or its error or its place is on the way.
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
        wait_made(awaited)
        found.update(places_of(awaited))
    inside = [one for one in nowhere if not (one in found and found[one].nodes)]
    for start in range(0, len(inside), LOOKED_AT):
        batch = inside[start : start + LOOKED_AT]
        values = fetched(batch, [names[one] for one in batch])
        found.update(
            {one: Found((), block_nbytes(value)) for one, value in zip(batch, values, strict=True)}
        )
    return found


def _grace(found: Found | None) -> float:
    """Return for how many seconds to wait that an object turns up in a store."""
    if found is None:
        return GRACE
    if found.nodes or found.nbytes <= SMALL:
        return 0.0
    return GRACE if found.nbytes > MEDIUM else SHORT_GRACE


def fetched(
    references: Sequence[ObjectRef],
    indexes: Sequence[tuple[int, ...]],
    timeout: float | None = None,
) -> list[Any]:
    """Return blocks, in order.

    Parameters
    ----------
    references : sequence of ObjectRef
        Of the blocks.
    indexes : sequence of tuple of int
        What to call them in errors.
    timeout : float, optional
        Seconds to wait; the block timeout by default.

    Returns
    -------
    list of block

    Raises
    ------
    BlockLostError
        If some are gone for good.
    BlockTimeoutError
        If they do not come.
    BaseException
        What the task raised that was to make one.
    """
    seconds = block_timeout() if timeout is None else timeout
    try:
        return list(ray.get(list(references), timeout=seconds))
    except Exception as error:  # noqa: BLE001 -- told as what it is
        named = tuple(dict.fromkeys(indexes))
        if isinstance(error, ObjectLostError) and len(named) > 1:
            named = _lost_among(references, indexes) or named
        raise told(error, named, seconds) from None


def _lost_among(
    references: Sequence[ObjectRef], indexes: Sequence[tuple[int, ...]]
) -> tuple[tuple[int, ...], ...]:
    """Return which blocks of several are lost; the others of them come, or are being made."""
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
