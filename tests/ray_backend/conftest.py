"""One Ray cluster for all tests of this folder: a process has one connection, and it takes long."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.ray_backend.cluster import RayNodes


@pytest.fixture(scope="package")
def nodes() -> Iterator[RayNodes]:
    """Three nodes."""
    from tests.ray_backend.cluster import RayNodes

    running = RayNodes()
    yield running
    running.end()
