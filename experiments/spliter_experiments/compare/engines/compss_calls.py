"""PyCOMPSs tasks that call a function on a block, as a program without SplIter defines them.

Workers import this module. Functions are passed by name, blocks as COMPSs transfers them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from pycompss.api.task import task

from spliter_backends.compss.api import compss_delete_object, compss_wait_on

NO_NUMBER = -1
"""Index of a block's first row for functions that do not take it."""


@task(returns=object)  # type: ignore[untyped-decorator]
def call_on_block(kernel: str, block: Any, start: int, shared: dict[str, Any]) -> Any:
    """Call a function on a block."""
    return _found(kernel)(block, *_leading(start), **shared)


@task(returns=object)  # type: ignore[untyped-decorator]
def call_on_blocks(kernel: str, block: Any, other: Any, start: int, shared: dict[str, Any]) -> Any:
    """Call a function on a block and its aligned block."""
    return _found(kernel)(block, other, *_leading(start), **shared)


def _leading(start: int) -> tuple[int, ...]:
    return () if start == NO_NUMBER else (start,)


def _found(kernel: str) -> Callable[..., Any]:
    module, _, name = kernel.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found


def name_of(kernel: Callable[..., Any]) -> str:
    """Return the name by which workers import a function.

    Examples
    --------
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
