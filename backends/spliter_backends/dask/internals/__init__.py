"""Every use of undocumented Dask, each with a check and a fallback.

A :class:`Feature` is an undocumented part of Dask that makes SplIter faster, or its errors earlier.
Before its first use in a process, SplIter checks that the attributes exist with the expected types
and parameters. If not, it logs a warning and uses only documented functions from then on:

=============== =================================== ===========================================
feature         purpose                             fallback
=============== =================================== ===========================================
batches         send the tasks of a loop at once    send each task by itself
pushes          send a batch without delay          Dask delays it by up to 10 ms
unfused tasks   keep the extraction of a block a    the first operation on blocks of results
                task of its own                     may move whole results
pickling        find out whether Dask pickles   values that wait for tasks when they are
                something under locks           pickled may hang
pool threads    find out whether a thread may wait  ``split`` in a task is not rejected
spans           put our tasks into one span         the scheduler records each burst of tasks
span records    remove ended groups of tasks        the records grow, as for any Dask program
dashboard       add a page to Dask's dashboard      there is no page
spill buffer    read a spilled block in place       Dask moves it back to memory, spills others
memory limits   reject what memory cannot hold      Dask kills the worker
scheduler calls query the scheduler in a task       query through the worker's client
peer reads      read a block from another worker    a Dask task copies it; if the scheduler has a
                                                    wrong holder: BlockTimeoutError
=============== =================================== ===========================================

Other modules use only what dask.org documents: the task classes of ``dask._task_spec`` (page
*Specification*), which have no public import path, and the attributes of ``Scheduler``,
``TaskState`` and ``WorkerState`` (page *Scheduling state*).
"""

from __future__ import annotations

from spliter_backends.dask.internals import client, scheduler, worker

__all__ = ["client", "scheduler", "worker"]
