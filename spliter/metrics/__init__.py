"""What passes over a Split took: kept where they ran, collected by the program.

``_records``     the last pass over each partition of the Splits measured last
``_report``      the table that :meth:`spliter.Split.metrics` returns
``_prometheus``  counters of this process, for Prometheus
"""

from __future__ import annotations

from spliter.metrics._records import RECORDS, take_passes
from spliter.metrics._report import Metrics, PartitionMetrics, report

__all__ = [
    "RECORDS",
    "Metrics",
    "PartitionMetrics",
    "report",
    "take_passes",
]
