"""API for authors of backends; programs that use existing backends do not need it.

``protocols``  interfaces of a backend: a locator, its opened blocks, an executor
``bases``      base classes that implement what most engines have in common
``registry``   list of backends, and the choice of one for a collection
``contents``   count and select the rows of blocks of any kind, and concatenate blocks

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
from spliter.backend.bases import (
    BlocksBase,
    CachedValue,
    ExecutorBase,
    MovementCounter,
    RemoteSource,
    blocks_of,
    futures_in,
    may_move,
    not_local_error,
    stays_at_location,
    with_results,
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
from spliter.backend.protocols import (
    Backend,
    Blocks,
    BlockSource,
    Declaration,
    Executor,
    GraphScheduler,
    Locator,
    Movement,
    ResultBlocks,
    SupportsClose,
    SupportsExample,
    SupportsFetches,
    SupportsPersist,
    SupportsPrefetch,
    SupportsSteal,
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
    "BlocksBase",
    "CachedValue",
    "Declaration",
    "Executor",
    "ExecutorBase",
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
    "SupportsClose",
    "SupportsExample",
    "SupportsFetches",
    "SupportsPersist",
    "SupportsPrefetch",
    "SupportsSteal",
    "blocks_of",
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
