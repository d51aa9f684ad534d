"""Wait until a way has left no trace at dataClay's backends.

Results and blocks put together are kept at backends until the client lets go of them, which tells
the backends a little later. Nothing here moves blocks; that they are still where they were is made
sure of.
"""

from __future__ import annotations

import gc
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from spliter import Location
from spliter_backends.dataclay.executor import DataClayExecutor
from spliter_experiments.harness.errors import ClusterError

REST_SECONDS = 60.0
POLL_SECONDS = 0.03


@dataclass(frozen=True)
class DataClayRest:
    """A state of the backends to come back to: no more is kept, and blocks are there.

    Parameters
    ----------
    executor : DataClayExecutor
        Of the client.
    backends : tuple of str
        Those that are there.
    kept : int
        How much they kept for clients.
    object_ids : tuple of UUID
        The blocks.
    homes : tuple of UUID or None
        Backends that held the blocks.
    """

    executor: DataClayExecutor
    backends: tuple[Location, ...]
    kept: int
    object_ids: tuple[uuid.UUID, ...]
    homes: tuple[uuid.UUID | None, ...]

    @classmethod
    def now(
        cls,
        executor: DataClayExecutor,
        backends: Sequence[Location],
        object_ids: Sequence[uuid.UUID] = (),
    ) -> DataClayRest:
        """Take what is kept now, and where blocks are."""
        kept = kept_at(executor, backends)
        homes = _homes(executor, object_ids)
        return cls(executor, tuple(backends), kept, tuple(object_ids), homes)

    def wait(self, timeout: float = REST_SECONDS) -> None:
        """Wait until no more is kept than there was.

        Raises
        ------
        ClusterError
            If that takes longer than `timeout` seconds, or blocks have moved.
        """
        deadline = time.monotonic() + timeout
        while (kept := kept_at(self.executor, self.backends)) > self.kept:
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"the backends are not at rest after {timeout:g} s: they keep {kept} results "
                    f"(before: {self.kept}); does someone else use this dataClay?"
                )
            gc.collect()  # futures in reference cycles hold results
            time.sleep(POLL_SECONDS)
        moved = sum(
            now != home
            for now, home in zip(_homes(self.executor, self.object_ids), self.homes, strict=True)
        )
        if moved:
            raise ClusterError(
                f"{moved} of {len(self.homes)} blocks are not at the backend where they were "
                "loaded; does someone else use this dataClay?"
            )


def kept_at(executor: DataClayExecutor, backends: Sequence[Location]) -> int:
    """Ask the backends how many things they keep for clients."""
    session = executor.session
    peers = [session.peer(uuid.UUID(backend)) for backend in backends]
    return sum(session.wait(peer.ask("kept")) for peer in peers)


def _homes(
    executor: DataClayExecutor, object_ids: Sequence[uuid.UUID]
) -> tuple[uuid.UUID | None, ...]:
    if not object_ids:
        return ()
    session = executor.session
    return tuple(session.wait(session.locate(object_ids)))
