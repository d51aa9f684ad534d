"""The adversary: a thread that does the faults of a case to the cluster, each at its time."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from spliter_experiments.chaos.arena import Arena
from spliter_experiments.chaos.cases import Fault
from spliter_experiments.chaos.outcomes import Struck

STOP_SECONDS = 60.0
"""For the last fault to be over: each has bounds of its own."""


class Adversary:
    """Strikes while a program runs.

    Parameters
    ----------
    arena : Arena
        The cluster.
    faults : sequence of Fault
        What to do.
    """

    def __init__(self, arena: Arena, faults: Sequence[Fault]) -> None:
        self._arena = arena
        self._faults = faults
        self._struck: list[Struck] = []
        self._lasting: list[threading.Thread] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chaos-adversary", daemon=True)
        self._start = 0.0

    def begin(self) -> None:
        """Start the clock."""
        self._start = time.monotonic()
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Whether all faults have happened, and those that last are over."""
        return not self._thread.is_alive() and not any(it.is_alive() for it in self._lasting)

    def end(self) -> tuple[Struck, ...]:
        """Do no more; return what was done. What lasts is ended first."""
        self._stop.set()
        self._thread.join(STOP_SECONDS)
        for lasting in self._lasting:
            lasting.join(STOP_SECONDS)
        return tuple(self._struck)

    def _run(self) -> None:
        for fault in self._faults:
            if self._stop.wait(max(0.0, self._start + fault.at - time.monotonic())):
                return
            if self._strike(fault):
                # By itself: the next fault may have to wait for one that is frozen now.
                lasting = threading.Thread(
                    target=self._relent, args=(fault,), name="chaos-relent", daemon=True
                )
                lasting.start()
                self._lasting.append(lasting)

    def _relent(self, fault: Fault) -> None:
        self._stop.wait(fault.seconds)
        self._arena.relent(fault)

    def _strike(self, fault: Fault) -> bool:
        try:
            what, done = self._arena.strike(fault), True
        except Exception as error:  # noqa: BLE001 -- what a harmed cluster answers is no result
            what, done = repr(error)[:200], False
        at = round(time.monotonic() - self._start, 3)
        self._struck.append(Struck(fault.kind, at, what, done))
        return done
