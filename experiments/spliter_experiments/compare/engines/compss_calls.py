"""PyCOMPSs tasks that call a function on a block, as a program without SplIter defines them.

Workers import this module. Functions are passed by name, blocks as COMPSs transfers them. An object
of dataClay comes as itself where the application has a storage interface, else as its id; a task
copies its content.
"""

from __future__ import annotations

import importlib
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pycompss.api.parameter import COLLECTION_IN
from pycompss.api.task import task

from spliter_backends.compss.api import compss_delete_object, compss_wait_on
from spliter_backends.compss.persistent_contents import content_of, object_of

NO_NUMBER = -1
"""Index of a block's first row for functions that do not take it."""


@dataclass(frozen=True)
class StoredBlock:
    """Id of an object in dataClay, and the address of the metadata service."""

    id: uuid.UUID
    service: tuple[str, int]

    def spliter_copy(self) -> Any:
        return content_of(object_of(self.id, self.service))


@task(returns=object)  # type: ignore[untyped-decorator]
def call_on_block(kernel: str, block: Any, start: int, shared: dict[str, Any]) -> Any:
    return _found(kernel)(content_of(block), *_leading(start), **shared)


@task(returns=object)  # type: ignore[untyped-decorator]
def call_on_blocks(kernel: str, block: Any, other: Any, start: int, shared: dict[str, Any]) -> Any:
    """Call a function on a block, or on the result of a task, and another block."""
    return _found(kernel)(content_of(block), content_of(other), *_leading(start), **shared)


@task(returns=object, found=COLLECTION_IN)  # type: ignore[untyped-decorator]
def call_on_list(kernel: str, found: list[Any], shared: dict[str, Any]) -> Any:
    return _found(kernel)(found, **shared)


def _leading(start: int) -> tuple[int, ...]:
    return () if start == NO_NUMBER else (start,)


def _found(kernel: str) -> Callable[..., Any]:
    module, _, name = kernel.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found


def name_of(kernel: Callable[..., Any]) -> str:
    """Return the name by which workers import a function.

    >>> from spliter_experiments.compare.workloads.sums import add_up
    >>> name_of(add_up)
    'spliter_experiments.compare.workloads.sums:add_up'
    """
    return f"{kernel.__module__}:{kernel.__qualname__}"


def results_of(futures: list[Any], shared: dict[str, Any]) -> list[Any]:
    """Wait for tasks, then delete their shared arguments from COMPSs."""
    found: list[Any] = compss_wait_on(futures)
    compss_delete_object(shared)
    return found
