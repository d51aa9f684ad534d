"""Read settings from environment variables."""

from __future__ import annotations

import os

from spliter import InvalidArgumentError


def positive_seconds(variable: str, default: float) -> float:
    """Return an environment variable, or if it is unset or empty the default, in seconds above 0.

    Examples
    --------
    >>> positive_seconds("SPLITER_RAY_BLOCK_TIMEOUT", default=300.0)
    300.0
    """
    given = os.environ.get(variable, "")
    try:
        seconds = float(given) if given else default
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise InvalidArgumentError(f"{variable} must be a number of seconds above 0, got {given!r}")
    return seconds
