"""The class of futures."""

from __future__ import annotations


class Future:
    """Stands for the result of a task; without any methods of its own."""
