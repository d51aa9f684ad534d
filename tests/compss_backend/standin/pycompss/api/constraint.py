"""``@constraint``: what a node must have to run a task."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from pycompss.api.task import CORE_ELEMENT_KEY
from pycompss.util.context import CONTEXT


class CoreElement:
    """What decorators above ``@task`` tell it."""

    def __init__(self, constraints: dict[str, Any]) -> None:
        self.constraints = constraints

    def get_impl_constraints(self) -> dict[str, Any]:
        """Return the constraints."""
        return self.constraints


class Constraint:
    """Decorator with constraints by name."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.constraints = kwargs
        self.scope = CONTEXT.in_pycompss()
        self.configured = False

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorate a task."""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.scope and CONTEXT.in_master() and not self.configured:
                kwargs[CORE_ELEMENT_KEY] = CoreElement(self.constraints)
                self.configured = True
            return function(*args, **kwargs)

        return call


constraint = Constraint
