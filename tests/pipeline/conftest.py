"""Options for tests of pipelines whose arguments are small."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spliter.pipeline import options


@pytest.fixture
def small_batches() -> Iterator[None]:
    """Cut all arguments, also those that would run plain."""
    with options(batch=7, threads=2):
        yield
