"""Concatenate a partition's blocks in a separate task, so that Dask manages the result's memory."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import dask
from distributed import Worker, get_client
from distributed.protocol.pickle import dumps, loads

from spliter import BlockTimeoutError
from spliter.backend import BlockSource, Prefetch
from spliter_backends.dask.scheduler.pins import PINNED
from spliter_backends.dask.scheduler.records import add_client_keys
from spliter_backends.dask.worker.fetch import leave_thread_pool, local_result
from spliter_backends.dask.worker.memory import MISSING, read_local


@contextmanager
def limit_time(timeout: float, worker: Worker) -> Iterator[None]:
    """Convert a `TimeoutError` of a call from a worker to a `BlockTimeoutError`."""
    try:
        yield
    except TimeoutError as error:
        raise BlockTimeoutError(
            f"neither the scheduler nor another worker answered {worker.address} within "
            f"{timeout:g} s; check the scheduler, or raise the Dask setting spliter.block-timeout"
        ) from error


@dataclass(frozen=True, eq=False, kw_only=True)
class MaterializableSource(BlockSource):
    """Source of a partition whose blocks a task at a worker can concatenate; small to pickle.

    materialized_key: Key of the concatenated blocks, if a task requests them.
    client: Id of the client that releases them.
    timeout: Maximum wait for blocks or the scheduler without progress, in seconds.
    shared: Whether any of several workers may run the tasks.
    prefetch ("auto", False or int): How many blocks to read ahead, of those that are not in memory.
    """

    materialized_key: str
    client: str
    timeout: float
    shared: bool = False
    prefetch: Prefetch = "auto"

    @abstractmethod
    def materialize_blocks(self) -> Any:
        """Concatenate the blocks; the body of a task."""


def materialize_blocks(data: bytes) -> Any:
    """Concatenate the blocks of a partition; the body of a task, whose result Dask keeps."""
    source: MaterializableSource = loads(data)
    return source.materialize_blocks()


def kept_results_topic(client: str) -> str:
    """Return the topic that reports results kept in a client's name."""
    return f"spliter-kept-{client}"


def materialize_here(worker: Worker, source: MaterializableSource) -> Any:
    """Return a partition's concatenated blocks, which Dask keeps until the client releases them.

    A separate task at this worker concatenates them, once for all concurrent callers; all tasks
    there share them. Raises `BlockTimeoutError` if that takes longer than the source's timeout.
    """
    key, timeout = source.materialized_key, source.timeout
    made = read_local(worker, key)
    if made is not MISSING:
        return made
    leave_thread_pool()  # the new task needs a thread
    own = get_client()
    with dask.annotate(**{PINNED: True}):
        future = own.submit(
            materialize_blocks,
            dumps(source),
            key=key,
            workers=[worker.address],
            allow_other_workers=False,
            pure=False,
        )
    # The client receives this before the end of the calling task is reported.
    worker.log_event(kept_results_topic(source.client), key)
    with limit_time(timeout, worker):
        try:
            made = local_result(own, future, timeout)
        except Exception:
            # The client keeps the error, its traceback this frame, and the frame the future.
            future.release()
            raise
        # Only now: it uses another connection than the task, and could overtake it.
        own.sync(
            own.run_on_scheduler,
            add_client_keys,
            [key],
            source.client,
            asynchronous=False,
            callback_timeout=timeout,
        )
    return made
