"""SplIter: iterate over distributed data where it lies.

``split`` asks the engine where each block of a collection is and groups the blocks of
each place into partitions; the program starts one task per partition instead of one per
block. Nothing is moved.

>>> import operator
>>> import numpy as np
>>> from spliter import reduce, split, task
>>> @task
... def total(partition):
...     return sum(float(block.sum()) for block in partition)
>>> blocks = [np.ones(1000) for _ in range(100)]
>>> partials = [total(partition) for partition in split(blocks)]
>>> reduce(operator.add, partials).result()
100000.0
"""

from __future__ import annotations

from spliter._errors import (
    AlignmentError,
    BackendNotUsableError,
    BlockLostError,
    BlockTimeoutError,
    ClientClosedError,
    InvalidArgumentError,
    LazyCollectionError,
    NotEnoughMemoryError,
    PackageMissingError,
    PartitionNotLocalError,
    SplitClosedError,
    SplIterError,
    TaskFailedError,
    TaskNotSerializableError,
    TaskTimeoutError,
    UnknownItemIndexError,
    UnsupportedCollectionError,
)
from spliter._grid import BlockGrid
from spliter._materialize import Materialization
from spliter._partition import Partition
from spliter._planner import Location, Placement, PlannedPartition, plan
from spliter._progress import as_completed, progress
from spliter._protocols import (
    Backend,
    Blocks,
    BlocksMade,
    BlockSource,
    CanClose,
    Executor,
    GivesExamples,
    Locator,
    Movement,
    PersistsCollections,
)
from spliter._registry import BackendInfo, backends, is_collection
from spliter._split import Split, split
from spliter._task import gather, reduce, task

__version__ = "0.1.0"

__all__ = [
    "AlignmentError",
    "Backend",
    "BackendInfo",
    "BackendNotUsableError",
    "BlockGrid",
    "BlockLostError",
    "BlockSource",
    "BlockTimeoutError",
    "Blocks",
    "BlocksMade",
    "CanClose",
    "ClientClosedError",
    "Executor",
    "GivesExamples",
    "InvalidArgumentError",
    "LazyCollectionError",
    "Location",
    "Locator",
    "Materialization",
    "Movement",
    "NotEnoughMemoryError",
    "PackageMissingError",
    "Partition",
    "PartitionNotLocalError",
    "PersistsCollections",
    "Placement",
    "PlannedPartition",
    "SplIterError",
    "Split",
    "SplitClosedError",
    "TaskFailedError",
    "TaskNotSerializableError",
    "TaskTimeoutError",
    "UnknownItemIndexError",
    "UnsupportedCollectionError",
    "as_completed",
    "backends",
    "gather",
    "is_collection",
    "plan",
    "progress",
    "reduce",
    "split",
    "task",
]
