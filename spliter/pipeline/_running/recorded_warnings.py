"""Floating-point warnings of a call: once, at the user's line, however many batches it ran on."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from spliter.pipeline._calls.calls import Call

KINDS: Final = {
    "divide by zero": "divide",
    "overflow": "over",
    "underflow": "under",
    "invalid value": "invalid",
}
"""What NumPy calls the kinds of floating-point errors in messages, and in ``numpy.errstate``."""


class WarningRecorder:
    """Records floating-point errors of calls in place of warning of them."""

    def __init__(self) -> None:
        self._found: dict[tuple[Call, str], None] = {}

    def errstate(self, modes: Mapping[str, Any], current: Callable[[], Call]) -> Any:
        """Return a context in which what would warn is recorded."""
        recorded: Any = {kind: "call" if mode == "warn" else mode for kind, mode in modes.items()}
        return np.errstate(call=_Handler(self, modes, current), **recorded)

    def record(self, call: Call, kind: str) -> None:
        """Record a floating-point error; threads may do so at a time."""
        self._found[call, kind] = None

    def report(self) -> None:
        """Warn of everything recorded, in the order of the calls."""
        found, self._found = self._found, {}
        for call, kind in sorted(found, key=lambda each: (each[0].number, each[1])):
            warnings.warn_explicit(
                f"{kind} encountered in {call.name}",
                RuntimeWarning,
                call.site.filename,
                call.site.lineno,
                module=call.site.namespace.get("__name__", "<string>"),
                registry=call.site.namespace.setdefault("__warningregistry__", {}),
            )


class _Handler:
    """What NumPy calls for a floating-point error."""

    def __init__(
        self, recorder: WarningRecorder, modes: Mapping[str, Any], current: Callable[[], Call]
    ) -> None:
        self.recorder = recorder
        self.modes = modes
        self.current = current

    def __call__(self, kind: str, flag: int) -> None:
        call = self.current()
        if self.modes[KINDS[kind]] == "warn":
            self.recorder.record(call, kind)
        elif call.errcall is not None:
            call.errcall(kind, flag)

    def write(self, message: str) -> None:
        """Pass a line of a log to the program's own."""
        if (log := self.current().errcall) is not None:
            log.write(message)
