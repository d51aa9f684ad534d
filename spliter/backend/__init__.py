"""API for authors of backends; programs that use existing backends do not need it.

``engine``    an engine's two halves, and the locator, which finds blocks
``blocks``    the opened blocks of a Split, and what a partition takes of them to its location
``executor``  runs functions at locations
``registry``  list of backends, and the choice of one for a collection
``contents``  count and select the rows of blocks of any kind, and concatenate blocks

``spliter.testing`` is the conformance suite that every backend passes.
"""

from __future__ import annotations

from spliter._counts import check_count
from spliter._events import LOGGER, log_event
from spliter._forks import check_process
from spliter._grid import UNKNOWN, BlockGrid, BlockIndexes, IntArray
from spliter._keys import plain_key
from spliter._lookup import Keys, RecordSource, refetch_record
from spliter._pace import Prefetch
from spliter._planner import Location, Placement, PlannedPartition, plan
from spliter._read_ahead import WINDOW_NBYTES, Fetches
from spliter._task_checks import name_of
from spliter.backend.blocks import (
    Blocks,
    BlockSource,
    CachedValue,
    Movement,
    MovementCounter,
    RemoteSource,
    blocks_of,
    not_local_error,
)
from spliter.backend.contents import (
    check_rows,
    concatenate,
    concatenate_grid,
    count_rows,
    has_rows,
    is_sparse,
    take_rows,
)
from spliter.backend.engine import Backend, Declaration, GraphScheduler, Locator
from spliter.backend.executor import (
    Executor,
    ResultBlocks,
    call_with_results,
    futures_in,
    may_move,
    stays_at_location,
    with_results,
)
from spliter.backend.registry import executor_of_future, load, locator_for
from spliter.metrics import RECORDS, Pass, take_passes

__all__ = [
    "LOGGER",
    "RECORDS",
    "UNKNOWN",
    "WINDOW_NBYTES",
    "Backend",
    "BlockGrid",
    "BlockIndexes",
    "BlockSource",
    "Blocks",
    "CachedValue",
    "Declaration",
    "Executor",
    "Fetches",
    "GraphScheduler",
    "IntArray",
    "Keys",
    "Location",
    "Locator",
    "Movement",
    "MovementCounter",
    "Pass",
    "Placement",
    "PlannedPartition",
    "Prefetch",
    "RecordSource",
    "RemoteSource",
    "ResultBlocks",
    "blocks_of",
    "call_with_results",
    "check_count",
    "check_process",
    "check_rows",
    "concatenate",
    "concatenate_grid",
    "count_rows",
    "executor_of_future",
    "futures_in",
    "has_rows",
    "is_sparse",
    "load",
    "locator_for",
    "log_event",
    "may_move",
    "name_of",
    "not_local_error",
    "plain_key",
    "plan",
    "refetch_record",
    "stays_at_location",
    "take_passes",
    "take_rows",
    "with_results",
]
