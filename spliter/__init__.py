"""SplIter: iterate over distributed data where it lies.

``split`` asks the engine where each block of a collection is and groups the blocks of each
location into partitions. The program starts one task per partition instead of one per block.
No block is moved.

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
    AnnotationError,
    BackendNotUsableError,
    BlockLostError,
    BlockTimeoutError,
    ClientClosedError,
    ForkedError,
    InvalidArgumentError,
    ItemIndexError,
    LayoutBoundsError,
    LayoutMessageError,
    LayoutOverlapError,
    LazyCollectionError,
    NotEnoughMemoryError,
    PackageMissingError,
    PartitionNotLocalError,
    PipelineFailedError,
    RecordSourceError,
    SplitClosedError,
    SplIterError,
    TaskFailedError,
    TaskNotSerializableError,
    TaskTimeoutError,
    UnknownItemIndexError,
    UnsupportedCollectionError,
    WholeArrayError,
)
from spliter._open import split
from spliter._partition import Partition
from spliter._partitioned import partitioned
from spliter._planning.grid import BlockGrid
from spliter._planning.planner import Location
from spliter._planning.reuse import Materialization
from spliter._planning.schedule import Schedule
from spliter._reading.batches import batches
from spliter._running.progress import as_completed, progress
from spliter._running.results import gather, reduce
from spliter._split import Split
from spliter._task import task
from spliter.ahead import ahead
from spliter.backend.blocks import Movement
from spliter.backend.registry import BackendInfo, backends, is_collection
from spliter.metrics import Metrics, PartitionMetrics

__version__ = "0.1.0"

__all__ = [
    "AlignmentError",
    "AnnotationError",
    "BackendInfo",
    "BackendNotUsableError",
    "BlockGrid",
    "BlockLostError",
    "BlockTimeoutError",
    "ClientClosedError",
    "ForkedError",
    "InvalidArgumentError",
    "ItemIndexError",
    "LayoutBoundsError",
    "LayoutMessageError",
    "LayoutOverlapError",
    "LazyCollectionError",
    "Location",
    "Materialization",
    "Metrics",
    "Movement",
    "NotEnoughMemoryError",
    "PackageMissingError",
    "Partition",
    "PartitionMetrics",
    "PartitionNotLocalError",
    "PipelineFailedError",
    "RecordSourceError",
    "Schedule",
    "SplIterError",
    "Split",
    "SplitClosedError",
    "TaskFailedError",
    "TaskNotSerializableError",
    "TaskTimeoutError",
    "UnknownItemIndexError",
    "UnsupportedCollectionError",
    "WholeArrayError",
    "ahead",
    "as_completed",
    "backends",
    "batches",
    "gather",
    "is_collection",
    "partitioned",
    "progress",
    "reduce",
    "split",
    "task",
]
