"""Run any Dask graph with one task per partition: :func:`partitioned`.

``planner``      groups tasks into clusters: pure functions
``plan``         what it returns
``clusters``     runs a cluster at a worker
``coarse``       builds the graph that Dask runs
``explain``      describes what would run
``partitioned``  the object for Dask's ``scheduler=``
"""

from __future__ import annotations

from spliter_backends.dask.graphs.partitioned import Partitioned

__all__ = ["Partitioned"]
