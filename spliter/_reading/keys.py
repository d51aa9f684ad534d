"""Keys of records as Python's own objects, whatever arrays and frames they come from."""

from __future__ import annotations

import datetime as dt
from collections.abc import Hashable
from contextlib import suppress
from typing import Any

import numpy as np

from spliter._errors import InvalidArgumentError


def plain_key(key: Any) -> Any:
    """Return a key as Python's own object: drivers and templates take NumPy's for other values.

    Raises
    ------
    InvalidArgumentError
        If it stands for a missing value, or is a time that Python cannot represent.

    Examples
    --------
    >>> import numpy as np
    >>> plain_key((np.str_("a"), np.int16(1))), plain_key(np.datetime64("2020-01-01T00", "ns"))
    (('a', 1), datetime.datetime(2020, 1, 1, 0, 0))
    """
    if type(key) in (str, int, bytes):  # most keys are, and the checks take as long as a read
        return key
    if isinstance(key, tuple) or (isinstance(key, np.void) and key.dtype.names):
        return tuple(plain_key(part) for part in key)  # type: ignore[union-attr]
    is_missing = key is None or key is np.ma.masked
    if not is_missing and isinstance(key, Hashable):
        is_equal = key == key  # noqa: PLR0124  NaN and NaT are not; pandas.NA is neither
        is_missing = not isinstance(is_equal, bool | np.bool_) or not is_equal
    if is_missing:
        raise InvalidArgumentError(
            f"the key {key!r} stands for a missing value; leave such rows out, or fill them"
        )
    if isinstance(key, np.datetime64 | np.timedelta64):
        return _plain_time(key)
    return key.item() if isinstance(key, np.generic) else key


def _plain_time(key: np.datetime64 | np.timedelta64) -> Any:
    with suppress(TypeError):  # months have no fixed number of days
        time = key.astype(f"{key.dtype.kind}8[us]")  # of days, item() would be a date
        plain: object = time.item()
        is_same = time == key == time.astype(key.dtype)  # coarse units overflow in time == key
        if is_same and isinstance(plain, dt.datetime | dt.timedelta):
            return plain
    raise InvalidArgumentError(
        f"the key {key!r} is no time that Python can represent, in years 1 to 9999 to the "
        "microsecond; make integers of such keys, as the source stores them"
    )


def identity_of(key: Hashable) -> tuple[Hashable, str]:
    """Return what only keys of the same record share: 1, 1.0 and True are equal, but three keys.

    Examples
    --------
    >>> identity_of(1) == identity_of(True), identity_of((1, "a")) == identity_of((1, "a"))
    (False, True)
    """
    return key, repr(key)
