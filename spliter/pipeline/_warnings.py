"""Floating-point warnings of a call: once, at the user's line, however many batches it ran on."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from spliter.pipeline._graph import Call

KINDS: Final = {
    "divide by zero": "divide",
    "overflow": "over",
    "underflow": "under",
    "invalid value": "invalid",
}
"""What NumPy calls the kinds of floating-point errors in messages, and in ``numpy.errstate``."""


class WarningRecorder:
    """Records floating-point errors of calls in place of warning of them.

    Parameters
    ----------
    handler : callable, object with a method ``write``, or None
        What the program has set with ``numpy.seterrcall``.
    """

    def __init__(self, handler: Any) -> None:
        self.handler = handler
        self.found: dict[Call, dict[str, None]] = {}
        self.lock = threading.Lock()

    def errstate(self, modes: Mapping[str, Any], current: Callable[[], Call]) -> Any:
        """Return a context in which what would warn is recorded.

        Parameters
        ----------
        modes : mapping of str to str
            What ``numpy.geterr`` returned where the call was made.
        current : callable
            Returns the call that this thread runs.
        """
        recorded: dict[str, Any] = {
            kind: "call" if mode == "warn" else mode for kind, mode in modes.items()
        }
        return np.errstate(call=_Handler(self, modes, current), **recorded)

    def record(self, call: Call, kind: str) -> None:
        """Record a floating-point error."""
        with self.lock:
            self.found.setdefault(call, {})[kind] = None

    def warn(self) -> None:
        """Warn of everything recorded, in the order of the calls."""
        found, self.found = self.found, {}
        for call in sorted(found, key=lambda call: call.number):
            for kind in found[call]:
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
        if self.modes[KINDS[kind]] == "warn":
            self.recorder.record(self.current(), kind)
        elif self.recorder.handler is not None:
            self.recorder.handler(kind, flag)

    def write(self, message: str) -> None:
        """Forward to what the program has set."""
        self.recorder.handler.write(message)
