"""Tests of Dask's own pass with clusters in the place of its tasks."""

from __future__ import annotations

import pytest

from tests.dask_backend.graphs.judge import judge

pytestmark = [pytest.mark.thorough, pytest.mark.backend("dask"), pytest.mark.timeout(300)]


def test_overlapping_blocks() -> None:
    outcomes, graphs, reasons = judge("dask.array.tests.test_overlap", "clusters")
    assert reasons == {}
    assert {*outcomes.values()} <= {"passed", "skipped"}
    assert [*graphs] == ["clusters"]
    assert graphs["clusters"] > 100
