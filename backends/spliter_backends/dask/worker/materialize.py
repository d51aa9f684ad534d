"""Tasks that a task starts at its own worker: Dask keeps, sizes, spills and frees their results."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import dask
from distributed import Worker, get_client
from distributed.protocol.pickle import dumps, loads

from spliter import BlockTimeoutError
from spliter_backends.dask.scheduler.client_keys import add_client_keys
from spliter_backends.dask.scheduler.pins import PINNED
from spliter_backends.dask.worker.fetch import leave_thread_pool, local_result
from spliter_backends.dask.worker.memory import MISSING, read_local


@contextmanager
def limit_time(timeout: float, worker: Worker) -> Iterator[None]:
    """Say of a call that timed out who has not answered.

    Parameters
    ----------
    timeout : float
        Seconds that the call may take.
    worker : distributed.Worker
        The one that it is made from.

    Yields
    ------
    None

    Raises
    ------
    BlockTimeoutError
        If it takes longer.
    """
    try:
        yield
    except TimeoutError as error:
        raise BlockTimeoutError(
            f"neither the scheduler nor another worker answered {worker.address} within "
            f"{timeout:g} s; the limit is the Dask setting spliter.block-timeout"
        ) from error


class MaterializableSource(Protocol):
    """What stands for a partition's blocks at a worker; small to pickle."""

    @property
    def materialized_key(self) -> str:
        """Key of the blocks as one, where a task asks for them by itself."""
        ...

    @property
    def client(self) -> str:
        """Identifier of the client that releases them."""
        ...

    @property
    def timeout(self) -> float:
        """Seconds to wait for them."""
        ...

    def materialize_blocks(self) -> Any:
        """Return the blocks as one, made anew."""
        ...


def materialize_blocks(data: bytes) -> Any:
    """Body of a task: return the blocks of a partition as one, which Dask keeps.

    Parameters
    ----------
    data : bytes
        Pickle of the partition's source.

    Returns
    -------
    block or tuple of block
    """
    source: MaterializableSource = loads(data)
    return source.materialize_blocks()


def kept_results_topic(client: str) -> str:
    """Return the topic on which a client hears of results that are kept in its name."""
    return f"spliter-kept-{client}"


def materialize_here(worker: Worker, source: MaterializableSource) -> Any:
    """Return the blocks of a partition as one, which Dask keeps until the client releases it.

    Parameters
    ----------
    worker : distributed.Worker
        The one that the calling task runs at. They are put into one by a task of their own, which
        runs once, however many tasks call this at the same time.
    source : MaterializableSource
        The partition's.

    Returns
    -------
    block or tuple of block
        Shared with all others that read it here.

    Raises
    ------
    BlockTimeoutError
        If it takes too long.
    """
    key, timeout = source.materialized_key, source.timeout
    made = read_local(worker, key)
    if made is not MISSING:
        return made
    leave_thread_pool()  # the task needs the thread
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
    # The client has this report before it hears that the calling task has ended.
    worker.log_event(kept_results_topic(source.client), key)
    with limit_time(timeout, worker):
        made = local_result(own, future, timeout)
        # Not before: it goes another way to the scheduler than the task, and could overtake it.
        own.sync(
            own.run_on_scheduler,
            add_client_keys,
            [key],
            source.client,
            asynchronous=False,
            callback_timeout=timeout,
        )
    return made
