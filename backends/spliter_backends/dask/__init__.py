"""Dask (distributed): partitions at workers, tasks pinned to them.

``locator``    finds the futures of a collection's blocks, or says what to call first
``blocks``     client-side blocks of a Split: locations, aligned copies, transfer counters
``executor``   tasks pinned to workers
``client/``    runs in the program: pickle calls, send tasks in batches, query the scheduler
``worker/``    runs on workers: find, fetch, copy and iterate the blocks of a partition
``graphs/``    runs any Dask graph with one task per partition
``scheduler/`` runs in the scheduler: release pins that cannot be honoured, bound its records
``dashboard``  a page of Dask's dashboard that shows partitions at their workers
``internals/`` every use of undocumented Dask
``features``   checks whether undocumented parts of Dask are as expected; falls back if not
"""

from __future__ import annotations

from spliter.backend import Backend
from spliter_backends.dask.executor import executor_of_future
from spliter_backends.dask.graphs import Partitioned
from spliter_backends.dask.locator import DaskLocator

BACKEND = Backend("dask", DaskLocator(), executor_of_future, partitioned=Partitioned)
"""Loaded by the registry under the name ``"dask"``."""
