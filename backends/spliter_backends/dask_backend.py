"""Dask (distributed): the backend as the registry loads it.

Where what is:

``_dask_graph``    from a collection to its futures, without asking the cluster
``dask_locator``   opens collections: futures, or an error that says what to call
``_dask_inquiry``  asks the scheduler: done, ``who_has``, sizes
``_dask_blocks``   the opened blocks: placement, aligned copies, count of what moved
``_dask_picked``   collections of what tasks have returned, block by block
``dask_executor``  tasks pinned to workers
``_dask_watch``    keeps alive what unfinished tasks need; sends the scheduler its plugin
``_dask_batch``    tasks that are submitted at the same time, as one message to the scheduler
``_dask_calls``    functions and arguments, pickled by the client, run by workers
``_dask_functions`` functions, pickled once each
``_dask_pins``     what runs at the scheduler: remove pins to workers that cannot serve them
``_dask_records``  what runs at the scheduler: bound its records of our finished tasks
``_dask_worker``   what runs on the worker: check, wait, move or fetch, iterate
``_dask_fetch``    what runs on the worker: read blocks that are at others
``_dask_memory``   what runs on the worker: read its memory, make room in it
``_dask_kept``     what runs on the worker: keep what was made once
``dask_dashboard`` a page of Dask's dashboard that shows partitions at their workers
"""

from __future__ import annotations

from spliter import Backend
from spliter_backends.dask_executor import executor_of_future
from spliter_backends.dask_locator import DaskLocator

BACKEND = Backend("dask", DaskLocator(), executor_of_future)
"""What the registry loads under the name ``"dask"``."""
