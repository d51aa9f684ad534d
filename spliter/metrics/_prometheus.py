"""Counters of this process in the default registry of ``prometheus_client``, if it is installed.

A Dask worker shows them on its own ``/metrics``. Elsewhere a program writes them to a file for the
node exporter, with ``prometheus_client.write_to_textfile``.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, Final

HELP: Final = {
    "passes": "Iterations over partitions",
    "blocks": "Blocks in the partitions iterated over",
    "bytes": "Bytes of these blocks",
    "seconds": "Time from the request of the first block to the end of the iteration",
    "cpu_seconds": "CPU time of the iterating threads",
    "waiting_seconds": "Time that iterations spent reading blocks",
    "unused_reads": "Reads ahead that were not used: the loop was left before",
    "steals": "Partitions that a thread took from the queue of another one",
}
"""Counters, each named ``spliter_<name>_total``."""


class Totals:
    """Counters of the iterations that have ended in this process; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values = dict.fromkeys(HELP, 0.0)
        self._is_registered = False

    def add(self, **more: float) -> None:
        """Add to counters."""
        with self._lock:
            for name, value in more.items():
                self._values[name] += value
            first, self._is_registered = not self._is_registered, True
        if first and find_spec("prometheus_client") is not None:
            from prometheus_client import REGISTRY

            # A module that was imported again finds its names taken; the loop must not fail for it.
            with contextlib.suppress(ValueError):
                REGISTRY.register(self)

    def collect(self) -> Iterator[Any]:
        """Yield the counters; called by ``prometheus_client``."""
        from prometheus_client.core import CounterMetricFamily

        with self._lock:
            values = dict(self._values)
        for name, value in values.items():
            yield CounterMetricFamily(f"spliter_{name}", HELP[name], value)
