"""Floating-point warnings of a call: once, at the user's line, however many batches it ran on."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from spliter.pipeline._calls.calls import Call


class WarningRecorder:
    """Records floating-point errors of calls in place of warning of them."""

    def __init__(self) -> None:
        self._found: dict[tuple[Call, str], None] = {}

    def errstate(self, call: Call, current: Callable[[], Call]) -> Any:
        """Return a context in which what would warn is recorded for the call that runs.

        The handling is that of the first call. What calls the program's own function is not
        recorded.
        """
        modes: Any = call.errstate
        if call.errcall is not None and not {"call", "log"}.isdisjoint(modes.values()):
            return np.errstate(call=call.errcall, **modes)
        instead = {"warn": "call", "call": "ignore", "log": "ignore"}
        recorded = {kind: instead.get(mode, mode) for kind, mode in modes.items()}
        return np.errstate(call=lambda kind, _: self._record(current(), kind), **recorded)

    def _record(self, call: Call, kind: str) -> None:
        self._found[call, kind] = None

    def report(self) -> None:
        """Warn of everything recorded, in the order of the calls."""
        found, self._found = self._found, {}
        for call, kind in sorted(found, key=lambda each: (each[0].number, each[1])):
            exponent = str(call.args[1]) if call.fn is operator.pow else None
            names = {None: call.name, "2": "square", "0.5": "sqrt", "-1": "reciprocal"}
            warnings.warn_explicit(
                f"{kind} encountered in {names.get(exponent, 'power')}",
                RuntimeWarning,
                call.site.filename,
                call.site.lineno,
                module=call.site.namespace.get("__name__", "<string>"),
                registry=call.site.namespace.setdefault("__warningregistry__", {}),
            )
