"""Check undocumented parts of Dask once per process, and log a fallback if one has changed."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any, Final

from spliter.backend import log_event

FEATURES: Final[dict[str, Feature]] = {}
"""All features by name."""


class Feature:
    """An undocumented part of Dask, checked before its first use.

    name: Key in :data:`FEATURES`.
    without: Consequence of the fallback, for the log.
    check: Called with objects of Dask; returns whether they are as expected. An exception means no.

    Examples
    --------
    >>> feature = Feature("pickle", "nothing is pickled", lambda one: hasattr(one, "__reduce__"))
    >>> feature.usable(object())
    True
    >>> del FEATURES["pickle"]
    """

    def __init__(self, name: str, without: str, check: Callable[..., bool]) -> None:
        self.name = name
        self._without = without
        self._check = check
        self._found: bool | None = None
        FEATURES[name] = self

    def usable(self, *objects: Any) -> bool:
        """Return whether Dask is as expected; checks `objects` once per process."""
        if self._found is None:
            self._found = self._as_expected(objects)
        return self._found

    def _as_expected(self, objects: tuple[Any, ...]) -> bool:
        try:
            found = self._check(*objects)
        except Exception:  # noqa: BLE001 - anything may be missing, or be of another type
            found = False
        if not found:
            log_event(
                "fallback",
                "this version of Dask differs from those tested, feature %(feature)r: %(without)s",
                level=logging.WARNING,
                engine="dask",
                feature=self.name,
                without=self._without,
            )
        return found

    def turn_off(self) -> None:
        """Use the fallback in this process from now on (for tests)."""
        self._found = False


def takes(fn: Callable[..., Any], *names: str) -> bool:
    """Return whether a function has parameters of these names."""
    return set(names) <= inspect.signature(fn).parameters.keys()
