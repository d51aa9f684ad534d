"""The line of the user's program that is being run: errors, warnings and ``explain`` name it."""

from __future__ import annotations

import functools
import traceback
from typing import Any, NamedTuple


class Site(NamedTuple):
    """Line of the user's program that made a call."""

    filename: str
    lineno: int
    namespace: dict[str, Any]

    def __str__(self) -> str:
        """Return ``file:line``."""
        return f"{self.filename}:{self.lineno}"

    @classmethod
    def of_caller(cls) -> Site:
        """Return the innermost line outside of this package and NumPy."""
        for frame, line in traceback.walk_stack(None):
            if not _is_library(frame.f_globals.get("__name__", "")) or frame.f_back is None:
                return cls(frame.f_code.co_filename, line, frame.f_globals)
        return cls("<unknown>", 0, {})


@functools.cache
def _is_library(module: str) -> bool:
    return module == "contextlib" or module.startswith(("spliter.", "numpy."))
