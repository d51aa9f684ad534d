"""COMPSs: the backend as the registry loads it.

Where what is:

``_compss_api``         what is used of PyCOMPSs, and what to do where it is missing
``_compss_requirements`` what COMPSs needs on this machine
``compss_locator``      opens ds-arrays, collections made by tasks, lists of futures
``compss_collections``  makes blocks by tasks that say where they run
``_compss_blocks``      the opened blocks: where they are, count of what moved
``compss_executor``     a call becomes one PyCOMPSs task
``_compss_payload``     how a call travels
``_compss_tasks``       the PyCOMPSs tasks
``_compss_worker``      what runs inside them
``_compss_persistent``  tasks over dataClay's objects
``_compss_outcome``     how results, errors and news come back
``_sent_errors``        how an error travels with its traceback
"""

from __future__ import annotations

from spliter import Backend, Blocks, Executor
from spliter_backends._compss_api import runtime_is_up
from spliter_backends._compss_blocks import CompssBlocks
from spliter_backends._compss_future import CompssFuture
from spliter_backends._compss_settings import CompssSettings, configure, settings
from spliter_backends._local_store import LocalBlocks
from spliter_backends.compss_collections import CompssCollection, make_blocks
from spliter_backends.compss_executor import EXECUTOR, executor_of_future
from spliter_backends.compss_locator import CompssLocator

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
    """Return the executor for blocks that another backend has found (persistent objects)."""
    if isinstance(blocks, CompssBlocks) or (
        isinstance(blocks, LocalBlocks) and not runtime_is_up()
    ):
        return EXECUTOR
    from spliter_backends._compss_persistent import CompssOverPersistent

    return CompssOverPersistent(blocks)


BACKEND = Backend("compss", CompssLocator(), executor_of_future, _executor_over)
"""What the registry loads under the name ``"compss"``."""
