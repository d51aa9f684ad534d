"""Dask (distributed): partitions at workers, tasks pinned to them.

``locator``    finds the futures of a collection's blocks, or says what to call first
``blocks``     the blocks of a Split at the client: where they are, aligned copies, what moved
``executor``   tasks pinned to workers
``client/``    what runs in the program: calls, batches of tasks, queries to the scheduler
``worker/``    what runs on workers: find, fetch, copy and iterate the blocks of a partition
``scheduler/`` what runs in the scheduler: release pins that cannot be honoured, bound its records
``dashboard``  a page of Dask's dashboard that shows partitions at their workers
``internals``  every use of what Dask does not document
``features``   checks of such uses, which SplIter does without where Dask is other than expected
``versions``   which processes of a cluster lack this version of SplIter
"""

from __future__ import annotations

from spliter.backend import Backend
from spliter_backends.dask.executor import executor_of_future
from spliter_backends.dask.locator import DaskLocator

BACKEND = Backend("dask", DaskLocator(), executor_of_future)
"""What the registry loads under the name ``"dask"``."""
