"""Count what a Dask worker reads from its spill files and writes to them; runs on the worker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from distributed.spill import Slow


@dataclass
class Traffic:
    """Reads and writes of each key since the last look."""

    reads: Counter[Any] = field(default_factory=Counter)
    writes: Counter[Any] = field(default_factory=Counter)


_traffic = Traffic()


def _counted(method: Callable[..., Any], counter: str) -> Callable[..., Any]:
    def count(self: Slow, key: Any, *value: Any) -> Any:
        getattr(_traffic, counter)[key] += 1
        return method(self, key, *value)

    return count


def start_counting() -> None:
    """Count from now on, at this worker."""
    # Of the class: Python does not look for these methods at the object.
    for name, counter in (("__getitem__", "reads"), ("__setitem__", "writes")):
        setattr(Slow, name, _counted(getattr(Slow, name), counter))


def traffic() -> Traffic:
    """Return what there was since the last look."""
    global _traffic
    found, _traffic = _traffic, Traffic()
    return found
