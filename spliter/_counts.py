"""Check arguments that are numbers of things."""

from __future__ import annotations

import numpy as np

from spliter._errors import InvalidArgumentError


def check_count(name: str, value: object, least: int = 1, instead: str = "") -> None:
    """Reject what is not an int of at least `least`.

    Parameters
    ----------
    name : str
        The argument, for the error.
    value : object
        A bool is no int here, one of NumPy's integers is.
    least : int
    instead : str
        What else the argument may be, for the error: ``"None or "``.

    Raises
    ------
    InvalidArgumentError
        With the value.

    Examples
    --------
    >>> check_count("threads", 2)
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InvalidArgumentError(f"{name} must be {instead}an int >= {least}, got {value!r}")
