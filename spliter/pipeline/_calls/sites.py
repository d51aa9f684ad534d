"""The line of the user's program that is being run: errors and warnings name it."""

from __future__ import annotations

import functools
import sys
from typing import Any, NamedTuple

from spliter._errors import InvalidArgumentError


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
        """Return the innermost line outside of this package, NumPy and pandas."""
        frame = sys._getframe(3)  # the callers of this are called by this package
        while _is_library(frame.f_globals.get("__name__", "")) and frame.f_back is not None:
            frame = frame.f_back
        return cls(frame.f_code.co_filename, frame.f_lineno, frame.f_globals)


@functools.cache
def _is_library(module: str) -> bool:
    return module == "contextlib" or module.startswith(("spliter.", "numpy.", "pandas."))


def used_in_pieces() -> InvalidArgumentError:
    """Return the error of a lazy value that is used in a function that does not get its pieces."""
    return InvalidArgumentError(
        f"{Site.of_caller()} uses a lazy value in a function that runs on pieces, and it is no "
        "argument of that; pass it as an argument that is broadcast, or evaluate it before, as "
        "numpy.asarray(value) and float(value) do"
    )
