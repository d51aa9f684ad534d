"""End the command when COMPSs hangs: waiting for one of its tasks cannot be interrupted.

PyCOMPSs waits in native code, and COMPSs waits for ever for a node that has not come up. So a
thread watches whether the command gets on, and ends the process if it does not.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from types import TracebackType

from spliter_experiments._errors import ClusterError

NODES_NOT_UP = 75
"""Exit status if not all nodes have run a task: it may go well the next time."""


def leave(message: str, status: int = ClusterError.exit_code) -> None:
    """End this process at once: nothing else ends a wait for COMPSs."""
    sys.stdout.flush()
    sys.stderr.write(f"Error: {message}\n")
    sys.stderr.flush()
    os._exit(status)


def leave_without_nodes(message: str) -> None:
    """End this process; whoever has launched it may launch it again."""
    leave(message, NODES_NOT_UP)


class Watchdog:
    """Ends the process unless it is heard from in time, for the time of a context.

    Parameters
    ----------
    seconds : float
        Until the first sign of life.
    about : str
        What is waited for until then.
    end : callable
        What to do with the message.
    """

    def __init__(self, seconds: float, about: str, end: Callable[[str], None] = leave) -> None:
        self._next = (seconds, about)
        self._heard = threading.Event()
        self._over = False
        self._end = end
        self._thread = threading.Thread(target=self._watch, name="spliter-watchdog", daemon=True)

    def __enter__(self) -> Watchdog:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over = True
        self._heard.set()
        self._thread.join()

    def hear(self, seconds: float, about: str) -> None:
        """Take a sign of life.

        Parameters
        ----------
        seconds : float
            Until the next one.
        about : str
            What is waited for until then.
        """
        self._next = (seconds, about)
        self._heard.set()

    def _watch(self) -> None:
        while not self._over:
            seconds, about = self._next
            if not self._heard.wait(seconds):
                self._end(
                    f"COMPSs has not come to an end with {about} within {seconds:g} s; its logs "
                    "may say why (a node that did not start, a task whose input was lost)"
                )
                return
            self._heard.clear()
