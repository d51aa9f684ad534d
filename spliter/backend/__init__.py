"""API for authors of backends; programs that use existing backends do not need it.

``engine``    an engine's two halves, and the locator, which finds blocks
``blocks``    the opened blocks of a Split
``executor``  runs functions at locations
``registry``  list of backends, and the choice of one for a collection

``spliter.testing`` is the conformance suite that every backend passes.
"""

from __future__ import annotations

from spliter._checks import check_count, check_process, name_of
from spliter._events import LOGGER, log_event
from spliter._planning.grid import UNKNOWN, BlockGrid, BlockIndexes, IntArray
from spliter._planning.passes import Pass
from spliter._planning.planner import Location, Placement, PlannedPartition, plan
from spliter._reading.concatenate import concatenate, concatenate_grid
from spliter._reading.keys import plain_key
from spliter._reading.kinds import is_sparse
from spliter._reading.lookup import Keys, RecordSource, refetch_record
from spliter._reading.pace import Prefetch
from spliter._reading.read_ahead import WINDOW_NBYTES, Fetches
from spliter._reading.rows import check_rows, count_rows, has_rows, take_rows
from spliter._reading.source import (
    BlockSource,
    CachedValue,
    RemoteSource,
    blocks_of,
    not_local_error,
)
from spliter.backend.blocks import Blocks, Movement, MovementCounter
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
from spliter.metrics import RECORDS, take_passes

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
