"""COMPSs backend: partitions at nodes, one PyCOMPSs task per partition.

``collection``  blocks that tasks have made
``creation``    makes blocks by tasks that report where they run
``locator``     finds the blocks of ds-arrays, of collections made by tasks, of lists of futures
``blocks``      client-side blocks of a Split: locations and transfer counters
``executor``    submits each call as one PyCOMPSs task
``call_pickling``  pickles a call
``tasks``       the PyCOMPSs tasks
``worker``      the body of these tasks
``source``      the blocks of a partition: sent by the main program, read by a task
``outcome``     results, errors and reports of tasks
``future``      PyCOMPSs' future with ``result()``
``persistent``  tasks over persistent objects of dataClay
``persistent_contents``  reads the contents of such objects inside a task
``settings``    settings of this backend
``api``         the functions of PyCOMPSs that are used, or advice if it is missing
``storage/``    the storage interface in Java, to be compiled next to the COMPSs runtime
"""

from __future__ import annotations

from spliter.backend import Backend, Blocks, Executor
from spliter_backends._shared.process_blocks import LocalBlocks
from spliter_backends.compss.api import runtime_is_up
from spliter_backends.compss.blocks import CompssBlocks
from spliter_backends.compss.collection import CompssCollection
from spliter_backends.compss.creation import make_blocks
from spliter_backends.compss.executor import EXECUTOR, executor_of_future
from spliter_backends.compss.future import CompssFuture
from spliter_backends.compss.locator import CompssLocator
from spliter_backends.compss.settings import CompssSettings, configure, settings

__all__ = [
    "BACKEND",
    "CompssCollection",
    "CompssFuture",
    "CompssSettings",
    "configure",
    "make_blocks",
    "settings",
]


def _executor_over(blocks: Blocks) -> Executor:
    """Return the executor for blocks opened by another backend's locator (persistent objects)."""
    if isinstance(blocks, CompssBlocks) or (
        isinstance(blocks, LocalBlocks) and not runtime_is_up()
    ):
        return EXECUTOR
    from spliter_backends.compss.persistent import CompssPersistentExecutor

    return CompssPersistentExecutor(blocks)


BACKEND = Backend("compss", CompssLocator(), executor_of_future, _executor_over)
"""Loaded by the registry under the name ``"compss"``."""
