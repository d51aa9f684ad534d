"""What the program holds of a partition: a reference to send, and the futures of its blocks."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from dask.typing import Key
from distributed import Future

from spliter import Partition
from spliter.backend import RemoteSource
from spliter_backends.dask.client.queries import check_not_cancelled
from spliter_backends.dask.worker.calls import PickledPartition
from spliter_backends.dask.worker.fetch import identity
from spliter_backends.dask.worker.materialize import MaterializableSource


class ClientSource(RemoteSource):
    """Source of a partition in the program, which pickles as the reference that its tasks read.

    futures: Blocks of each collection, and copies made for this partition; empty for stored blocks.
    release_key: Takes the key of the concatenated blocks, which tasks may have kept in the client's
        name.

    sent: The partition as its last task got it, and its state then (`begin_pass`).
    one: Its concatenated blocks.
    lock: For both.
    """

    def __init__(
        self,
        reference: MaterializableSource,
        futures: Sequence[Sequence[Future[Any]]],
        release_key: Callable[[Key], None],
    ) -> None:
        super().__init__("in the memory of a Dask worker")
        self.reference = reference
        self.futures = futures
        self.sent: tuple[Any, bool, PickledPartition | Future[Any]] | None = None
        self.one: Future[Any] | None = None
        self.lock = threading.Lock()
        self._release_key = release_key
        # Runs after the last task on the partition: running tasks keep this object alive.
        weakref.finalize(self, release_key, reference.materialized_key)

    def reusable(
        self, partition: Partition, materialize: bool
    ) -> PickledPartition | Future[Any] | None:
        """Return the partition as sent before, or None if it must be sent again.

        Raises `BlockLostError` if its blocks were cancelled.
        """
        sent = None
        if self.sent is not None:
            indexes, was_one, sent = self.sent
            # Item indexes may have become known, or iteration may yield one block now.
            if indexes is not partition.indexes or was_one != materialize or _is_cancelled(sent):
                sent = None
        # Of those sent before the first block suffices: client.restart() cancels all of them.
        if self.futures and (sent is None or _is_cancelled(self.futures[0][0])):
            names = partition.get_indexes()
            check_not_cancelled(self.futures[0], lambda lost: [names[at] for at in lost.tolist()])
        return sent

    def keep_alive(self) -> tuple[Any, ...]:
        """Return objects that a task needs, even if the Split is closed before it ends."""
        return self, self.futures

    def release(self) -> None:
        """Release the sent partition, the blocks and their copies, and the concatenated blocks."""
        with self.lock:
            self.sent = self.one = None
            self.futures = ()
        self._release_key(self.reference.materialized_key)

    def __reduce__(self) -> tuple[Any, ...]:
        return identity, (self.reference,)


def _is_cancelled(sent: Any) -> bool:
    return isinstance(sent, Future) and sent.status == "cancelled"
