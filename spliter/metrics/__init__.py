"""What a pass over a Split took: measured where it ran, collected by the program.

``_records``     measure the iteration over a partition, and keep the last one of each
``_report``      the table that :meth:`spliter.Split.metrics` returns
``_prometheus``  counters of this process, for Prometheus
"""

from __future__ import annotations

from spliter.metrics._records import RECORDS, STOLEN, MeasuredBlocks, Pass, key_of, take_passes
from spliter.metrics._report import Metrics, PartitionMetrics, report

__all__ = [
    "RECORDS",
    "STOLEN",
    "MeasuredBlocks",
    "Metrics",
    "PartitionMetrics",
    "Pass",
    "key_of",
    "report",
    "take_passes",
]
