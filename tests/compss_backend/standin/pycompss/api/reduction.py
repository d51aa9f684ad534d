"""``@reduction``: here a decorator without effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Decorator:
    """Takes any arguments and returns the function as it is."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.arguments = kwargs

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorate a task."""
        return function


reduction = Decorator
