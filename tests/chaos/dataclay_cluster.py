"""An embedded dataClay for chaos runs: backends are killed, frozen and added, blocks moved."""

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

from spliter import Location
from spliter_backends.dataclay import DataClayArray, distribute
from spliter_backends.dataclay.cluster import EmbeddedDataClay
from spliter_backends.dataclay.executor import current_executor
from spliter_backends.dataclay.output import suppress_output
from tests.chaos.cases import WORKERS, Case, Fault
from tests.chaos.programs import Array, Collections
from tests.chaos.runner import NoTargetError, cut, pick

MOST_BACKENDS: Final = 5
"""No more are added: each has dozens of threads."""

FAULT_SECONDS: Final = 10.0
"""For one fault to be done, or a backend to answer."""

EMPTY_SECONDS: Final = 20.0
"""For the backends to have freed what the program made."""


class DataClayCluster:
    engine_errors = ()

    def __init__(self) -> None:
        self._cluster = EmbeddedDataClay(WORKERS).start()
        with suppress_output():
            self._cluster.client()
        self._alive = list(self._cluster.backend_ids)
        self._collections: list[DataClayArray] = []
        self._pids: dict[uuid.UUID, int] = {}
        self._frozen: dict[int, Callable[[], None]] = {}

    def place(self, case: Case, arrays: tuple[Array, ...]) -> Collections:
        while len(self._alive) < WORKERS:
            self._alive.append(self._cluster.add())
        for backend in self._alive:
            if backend not in self._pids:  # asked for now, as a frozen one does not answer
                self._pids[backend] = self._call(backend, os.getpid)
        self._collections = [
            distribute(cut(array, case), backends=self._alive[:WORKERS], placement=places)
            for array, places in zip(arrays, (case.places, case.further_places), strict=False)
        ]
        if case.as_list:
            return tuple(one.blocks for one in self._collections)
        return tuple(self._collections)

    def inject(self, fault: Fault) -> str:
        return str(getattr(self, f"_{fault.kind}")(fault))

    def recover(self, fault: Fault) -> None:
        end = self._frozen.pop(id(fault), None)
        with contextlib.suppress(ProcessLookupError):
            if end is not None:
                end()

    def clean_up(self) -> str:
        """Delete the blocks; return what else the backends keep."""
        collections, self._collections = self._collections, []
        for collection in collections:
            collection.delete()
        deadline = time.monotonic() + EMPTY_SECONDS
        while left := self._kept():
            if time.monotonic() > deadline:
                return f"{left} objects are kept at the backends"
            gc.collect()
            time.sleep(0.05)
        return ""

    def _kept(self) -> int:
        """Return how many results, transfers and materialized partitions the backends keep."""
        session = current_executor().session
        return sum(
            session.wait(session.peer(one).request("kept"), FAULT_SECONDS) for one in self._alive
        )

    def _call(self, backend: uuid.UUID, fn: Callable[[], Any]) -> Any:
        future = current_executor().submit(fn, (), {}, Location(str(backend)))
        return future.result(timeout=FAULT_SECONDS)

    def state(self) -> str:
        return ""

    def close(self, *, abandoned: bool = False) -> None:
        for end in self._frozen.values():
            with contextlib.suppress(ProcessLookupError):
                end()
        self._cluster.close()

    # --- faults ---

    def _kill(self, fault: Fault) -> uuid.UUID:
        if len(self._alive) < 2:
            self._add(fault)
        backend = pick(fault, self._alive)
        self._cluster.kill(self._cluster.backend_ids.index(backend))
        self._alive.remove(backend)
        return backend

    def _freeze(self, fault: Fault) -> uuid.UUID:
        backend = pick(fault, self._alive)
        if backend not in self._pids:
            raise NoTargetError("the backend is new")
        pid = self._pids[backend]
        os.kill(pid, signal.SIGSTOP)
        self._frozen[id(fault)] = functools.partial(os.kill, pid, signal.SIGCONT)
        return backend

    def _add(self, fault: Fault) -> uuid.UUID:
        if len(self._alive) >= MOST_BACKENDS:
            raise NoTargetError("there are backends enough")
        backend = self._cluster.add()
        self._alive.append(backend)
        return backend

    def _move(self, fault: Fault) -> str:
        """Move every third block to one backend."""
        target = pick(fault, self._alive)
        every = [it for one in self._collections for it in one.object_ids]
        chosen = every[fault.target % 3 :: 3]
        mover = _Mover(chosen, target)
        # dataClay waits for ever for a backend that has been killed.
        mover.thread.join(FAULT_SECONDS)
        if mover.failed or mover.thread.is_alive():
            raise NoTargetError(f"{mover.moved} of {len(chosen)} moved: {mover.failed}")
        return f"{mover.moved} blocks to {target}"


class _Mover:
    """Moves objects in a thread of its own."""

    def __init__(self, object_ids: Sequence[uuid.UUID], target: uuid.UUID) -> None:
        self.moved = 0
        self.failed = ""
        self.thread = threading.Thread(target=self._move, args=(object_ids, target), daemon=True)
        self.thread.start()

    def _move(self, object_ids: Sequence[uuid.UUID], target: uuid.UUID) -> None:
        from dataclay import DataClayObject

        try:
            for object_id in object_ids:
                DataClayObject.get_by_id(object_id).move(target)
                self.moved += 1
        except Exception as error:  # noqa: BLE001 -- backends are killed meanwhile
            self.failed = repr(error)
