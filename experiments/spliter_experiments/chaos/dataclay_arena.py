"""A dataClay that may be harmed: backends are killed, frozen and added, blocks moved about."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from spliter import Location
from spliter_backends._dataclay_quiet import quiet
from spliter_backends.dataclay_cluster import EmbeddedDataClay
from spliter_backends.dataclay_collections import DataClayArray, distribute
from spliter_backends.dataclay_executor import current_executor
from spliter_experiments.chaos.arena import Arena, NothingToStrikeError, pick
from spliter_experiments.chaos.cases import WORKERS, Case, Fault
from spliter_experiments.chaos.programs import Array, Collections

MOST_BACKENDS: Final = 5
"""More than that are not added: each has dozens of threads."""

FAULT_SECONDS: Final = 10.0
"""For one fault to be done, or a backend to answer."""

EMPTY_SECONDS: Final = 20.0
"""For the backends to have freed what the program made."""


class DataClayArena(Arena):
    """An embedded dataClay of this machine."""

    def __init__(self) -> None:
        self._cluster = EmbeddedDataClay(WORKERS).start()
        with quiet():
            self._cluster.client()
        self._alive = list(self._cluster.backend_ids)
        self._collections: list[DataClayArray] = []
        self._pids: dict[uuid.UUID, int] = {}
        self._frozen: dict[int, Callable[[], None]] = {}
        self._kinds: dict[str, Callable[[Fault], str]] = {
            "kill": self._kill,
            "freeze": self._freeze,
            "move": self._move,
            "add": self._add,
        }

    def begin(self, case: Case, arrays: tuple[Array, ...]) -> Collections:
        """Have enough backends; put the blocks at those that the case says."""
        while len(self._alive) < WORKERS:
            self._alive.append(self._cluster.add())
        for backend in self._alive:
            if backend not in self._pids:  # asked for now, as a frozen one does not answer
                self._pids[backend] = self._ask(backend, os.getpid)
        starts = np.cumsum([0, *case.rows])[:-1].tolist()
        self._collections = [
            distribute(
                [
                    array[start : start + rows]
                    for start, rows in zip(starts, case.rows, strict=True)
                ],
                backends=self._alive[:WORKERS],
                placement=places,
            )
            for array, places in zip(arrays, (case.places, case.further_places), strict=False)
        ]
        if case.as_list:
            return tuple(one.blocks for one in self._collections)
        return tuple(self._collections)

    def strike(self, fault: Fault) -> str:
        """Do a fault."""
        return self._kinds[fault.kind](fault)

    def relent(self, fault: Fault) -> None:
        """End a fault that lasts."""
        end = self._frozen.pop(id(fault), None)
        if end is not None:
            with contextlib.suppress(ProcessLookupError):
                end()

    def end(self) -> str:
        """Delete the blocks that are left; say what else is kept at the backends."""
        collections, self._collections = self._collections, []
        for collection in collections:
            collection.delete()
        deadline = time.monotonic() + EMPTY_SECONDS
        while left := self._kept():
            if time.monotonic() > deadline:
                return f"{left} things are kept at the backends"
            gc.collect()
            time.sleep(0.05)
        return ""

    def _kept(self) -> int:
        """Return how many results, transfers and blocks as one the backends keep."""
        session = current_executor().session
        return sum(
            session.wait(session.peer(one).ask("kept"), FAULT_SECONDS) for one in self._alive
        )

    def _ask(self, backend: uuid.UUID, fn: Callable[[], Any]) -> Any:
        future = current_executor().submit(fn, (), {}, Location(str(backend)))
        return future.result(timeout=FAULT_SECONDS)

    def close(self, *, abandoned: bool = False) -> None:
        """End all processes."""
        for end in self._frozen.values():
            with contextlib.suppress(ProcessLookupError):
                end()
        self._cluster.close()

    # --- faults ---

    def _kill(self, fault: Fault) -> str:
        if len(self._alive) < 2:
            self._add(fault)
        backend = pick(fault, self._alive)
        self._cluster.kill(self._cluster.backend_ids.index(backend))
        self._alive.remove(backend)
        return str(backend)

    def _freeze(self, fault: Fault) -> str:
        backend = pick(fault, self._alive)
        if backend not in self._pids:
            raise NothingToStrikeError("the backend is new")
        pid = self._pids[backend]
        os.kill(pid, signal.SIGSTOP)
        self._frozen[id(fault)] = functools.partial(os.kill, pid, signal.SIGCONT)
        return str(backend)

    def _add(self, fault: Fault) -> str:
        if len(self._alive) >= MOST_BACKENDS:
            raise NothingToStrikeError("there are backends enough")
        backend = self._cluster.add()
        self._alive.append(backend)
        return str(backend)

    def _move(self, fault: Fault) -> str:
        """Move every third block to one backend."""
        target = pick(fault, self._alive)
        every = [it for one in self._collections for it in one.object_ids]
        chosen = every[fault.target % 3 :: 3]
        mover = _Mover(chosen, target)
        # dataClay waits for ever for a backend that has been killed.
        mover.thread.join(FAULT_SECONDS)
        if mover.failed or mover.thread.is_alive():
            raise NothingToStrikeError(f"{mover.moved} of {len(chosen)} moved: {mover.failed}")
        return f"{mover.moved} blocks to {target}"


class _Mover:
    """Moves objects in a thread of its own."""

    def __init__(self, object_ids: Sequence[uuid.UUID], target: uuid.UUID) -> None:
        self.moved = 0
        self.failed = ""
        self._object_ids = object_ids
        self._target = target
        self.thread = threading.Thread(target=self._move, name="chaos-mover", daemon=True)
        self.thread.start()

    def _move(self) -> None:
        from dataclay import DataClayObject

        try:
            for object_id in self._object_ids:
                DataClayObject.get_by_id(object_id).move(self._target)
                self.moved += 1
        except Exception as error:  # noqa: BLE001 -- backends are killed meanwhile
            self.failed = repr(error)
