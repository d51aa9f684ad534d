"""Conformance suite for backends: pytest tests to subclass.

Needs the extra ``test`` (pytest and hypothesis); ``import spliter`` does not import it.

``BackendTests``
    The suite. A backend's test module subclasses it and fills in a few hooks.
``index_encoded_array``, ``index_encoded_block``, ``index_encoded_blocks``, ``rows_in``
    Data whose values are their own global indexes, so that a misplaced block, a wrong order
    or a wrong item index shows in the values.
``check_splittable``
    Tries whether a split annotation of :mod:`spliter.pipeline` gives the function's own results.
``strategies``
    Hypothesis strategies for block grids, placements and capacities.
"""

from __future__ import annotations

import pytest

# Before their import: pytest then shows the compared values of failures.
pytest.register_assert_rewrite(
    "spliter.testing._checks_of_materialized",
    "spliter.testing._checks_of_partitions",
    "spliter.testing._checks_of_rows",
    "spliter.testing._checks_of_schedules",
    "spliter.testing._checks_of_splits",
    "spliter.testing._checks_of_tasks",
)

from spliter.testing import strategies  # noqa: E402 -- see above
from spliter.testing._encoding import (  # noqa: E402
    index_encoded_array,
    index_encoded_block,
    index_encoded_blocks,
    rows_in,
)
from spliter.testing._splittable import check_splittable  # noqa: E402
from spliter.testing._suite import BackendTests  # noqa: E402

__all__ = [
    "BackendTests",
    "check_splittable",
    "index_encoded_array",
    "index_encoded_block",
    "index_encoded_blocks",
    "rows_in",
    "strategies",
]
