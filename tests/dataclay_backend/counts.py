"""Wait for what backends keep to be what it should be."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

from spliter import Location
from spliter_backends.dataclay.cluster import EmbeddedDataClay
from spliter_backends.dataclay.executor import current_executor

SETTLES = 20.0
"""Seconds in which backends must have freed what they were told to."""


def total_over(cluster: EmbeddedDataClay, count: Callable[[], int]) -> int:
    """Sum up what backends say."""
    submit = current_executor().submit
    asked = [submit(count, (), {}, Location(str(one))) for one in cluster.backend_ids]
    return sum(future.result(timeout=60) for future in asked)


def steady(cluster: EmbeddedDataClay, count: Callable[[], int]) -> int:
    """Sum up what backends say, once what earlier tests have left is freed."""
    gc.collect()
    found = [-1, total_over(cluster, count)]
    while found[-1] != found[-2]:
        time.sleep(0.2)
        found.append(total_over(cluster, count))
    return found[-1]


def settled(cluster: EmbeddedDataClay, count: Callable[[], int], wanted: int) -> bool:
    """Wait until backends say what is wanted."""
    gc.collect()
    deadline = time.monotonic() + SETTLES
    while time.monotonic() < deadline:
        if total_over(cluster, count) == wanted:
            return True
        time.sleep(0.05)
    return False
