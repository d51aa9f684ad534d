"""One Ray cluster for all tests of this folder: a process has one connection, and it takes long."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.ray_backend.cluster import RayNodes


@pytest.fixture(scope="package", autouse=True)
def folder() -> Iterator[None]:
    """Where Ray keeps sockets and logs, 10 MB of them for each cluster: removed at the end.

    Not pytest's, whose paths are long: that of a socket is 107 characters at most, of which Ray
    takes 70.
    """
    short = "/tmp"
    with (
        # Processes that are ending may write another line meanwhile.
        tempfile.TemporaryDirectory(prefix="r", dir=short, ignore_cleanup_errors=True) as made,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("RAY_TMPDIR", made)
        yield


@pytest.fixture(scope="package")
def nodes(folder: None) -> Iterator[RayNodes]:
    from tests.ray_backend.cluster import RayNodes

    running = RayNodes()
    yield running
    running.end()
