"""``@task``: what a call of the decorated function does."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

from pycompss import cluster
from pycompss.util.context import CONTEXT

CORE_ELEMENT_KEY = "compss_core_element"


class Task:
    """Decorator with the directions of the parameters by name, and ``returns``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.arguments = kwargs
        self.core_element: Any = None

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorate a function."""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if CONTEXT.in_master():
                return self._submit(function, args, kwargs)
            if CONTEXT.in_worker():
                if kwargs.pop("compss_key", None) is not None:
                    return function(*args, **kwargs)
                sys.stderr.write(f"WARNING: task {function.__name__} called by a task\n")
            kwargs.pop("returns", None)
            return function(*args, **kwargs)

        return call

    def _submit(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        # The decorator above gives it along on the first call only; it is kept for the others.
        self.core_element = kwargs.pop(CORE_ELEMENT_KEY, None) or self.core_element
        returns = kwargs.pop("returns", None) or self.arguments.get("returns")
        bound = inspect.signature(function).bind(*args, **kwargs)
        constraints = self.core_element.get_impl_constraints() if self.core_element else {}
        assert cluster.RUNNING is not None
        in_turn = bool(self.arguments.get("is_distributed"))
        return cluster.RUNNING.submit(
            function, dict(bound.arguments), self.arguments, returns, constraints, in_turn
        )


task = Task
