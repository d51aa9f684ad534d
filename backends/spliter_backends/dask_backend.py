"""Dask (distributed): the backend as the registry loads it.

Where what is:

``_dask_graph``    from a collection to its futures, without asking the cluster
``dask_locator``   opens collections: futures, or an error that says what to call
``_dask_inquiry``  asks the scheduler: done, ``who_has``, sizes
``_dask_blocks``   the opened blocks: placement, aligned copies, count of what moved
``dask_executor``  tasks pinned to workers, and an eye on those under way
``_dask_worker``   what runs on the worker: check, wait, move or fetch, iterate
``_dask_kept``     what runs on the worker: read its memory, keep what was made once
"""

from __future__ import annotations

from spliter import Backend
from spliter_backends.dask_executor import executor_of_future
from spliter_backends.dask_locator import DaskLocator

BACKEND = Backend("dask", DaskLocator(), executor_of_future)
"""What the registry loads under the name ``"dask"``."""
