"""Connections of this process: opened when they are first used, shared by threads, closed at exit.

Sources are pickled without them. A forked process opens its own, and leaves alone those of its
parent, which would be closed for both.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from typing import Any, Final


class Connections:
    """Connections by the key of their source; thread-safe.

    Examples
    --------
    >>> connections = Connections()
    >>> connections.get("a", list, list.clear) is connections.get("a", list, list.clear)
    True
    """

    def __init__(self) -> None:
        self._inherited: list[Any] = []
        self._open: dict[str, tuple[Any, Callable[[Any], object]]] = {}
        self._lock = threading.Lock()

    def get(self, key: str, connect: Callable[[], Any], disconnect: Callable[[Any], object]) -> Any:
        """Return the connection of a key; open it if there is none yet."""
        with self._lock:
            if key not in self._open:
                self._open[key] = connect(), disconnect
            return self._open[key][0]

    def drop(self, key: str) -> None:
        """Close the connection of a key, if there is one."""
        with self._lock:
            opened = self._open.pop(key, None)
        if opened:
            connection, disconnect = opened
            disconnect(connection)

    def close(self) -> None:
        """Close all; a source that is used again opens a new one."""
        with self._lock:
            opened, self._open = self._open, {}
        for connection, disconnect in opened.values():
            disconnect(connection)

    def leave_to_parent(self) -> None:
        """Forget all, without closing them, in a process that was forked."""
        self._inherited.append(self._open)  # garbage-collected, some would be closed
        self._open = {}
        self._lock = threading.Lock()  # another thread may have held it


CONNECTIONS: Final = Connections()
"""Those of this process."""

atexit.register(CONNECTIONS.close)
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=CONNECTIONS.leave_to_parent)
