"""Floating-point warnings of a call: once, at the user's line, however many batches it ran on.

What the program has set by ``numpy.errstate(call=...)`` is called once per call, too.
"""

from __future__ import annotations

import functools
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from spliter.pipeline._calls.calls import Call, Node
from spliter.pipeline._calls.split_types import Reduction, SplitType

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
        self.found: dict[Call, dict[str, Callable[[], Any]]] = {}
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
            kind: "call" if mode in ("warn", "print") else mode for kind, mode in modes.items()
        }
        return np.errstate(call=_Handler(self, modes, current), **recorded)

    def record(self, call: Call, error: str, report: Callable[[], Any]) -> None:
        """Record what reports a floating-point error."""
        with self.lock:
            self.found.setdefault(call, {}).setdefault(error, report)

    def report(self) -> None:
        """Report everything recorded, in the order of the calls."""
        found, self.found = self.found, {}
        for call in sorted(found, key=lambda call: call.number):
            for report in found[call].values():
                report()


def recorded(kind: SplitType, node: Node, recorder: WarningRecorder) -> SplitType:
    """Return a type that combines partial results under its call's floating-point handling.

    Parameters
    ----------
    kind : SplitType
    node : Node
        The result.
    recorder : WarningRecorder
    """
    call = node.call
    if not isinstance(kind, Reduction) or call is None:
        return kind
    merge_two, last_step = kind.merge_two, kind.finish

    def merge(one: Any, other: Any) -> Any:
        with recorder.errstate(call.errstate, lambda: call):
            return merge_two(one, other)

    def finish(last: Any) -> Any:
        with np.errstate(**call.errstate, call=call.errcall):
            return last if last_step is None else last_step(last)

    return kind.with_steps(merge, finish)


@dataclass(frozen=True)
class WithErrstate:
    """A function under a handling of floating-point errors; a task can get it.

    Parameters
    ----------
    fn : callable
    modes : dict of str to str
        What ``numpy.geterr`` returned where the call was made.
    """

    fn: Callable[..., Any]
    modes: dict[str, Any]

    @classmethod
    def of(cls, kind: Reduction, modes: dict[str, Any]) -> Reduction:
        """Return a reduction whose partial results are combined so; handlers are not called."""
        kept = {key: "ignore" if mode in ("call", "log") else mode for key, mode in modes.items()}
        return kind.with_steps(cls(kind.merge_two, kept), kind.finish and cls(kind.finish, kept))

    def __call__(self, *args: Any) -> Any:
        """Call the function."""
        with np.errstate(**self.modes):
            return self.fn(*args)


def _warn(call: Call, kind: str) -> None:
    warnings.warn_explicit(
        f"{kind} encountered in {call.name}",
        RuntimeWarning,
        call.site.filename,
        call.site.lineno,
        module=call.site.namespace.get("__name__", "<string>"),
        registry=call.site.namespace.setdefault("__warningregistry__", {}),
    )


def _print(call: Call, kind: str) -> None:
    sys.stderr.write(f"Warning: {kind} encountered in {call.name}\n")


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
        mode = self.modes[KINDS[kind]]
        if mode in ("warn", "print"):
            report = _warn if mode == "warn" else _print
            self.recorder.record(call, kind, functools.partial(report, call, kind))
        elif call.errcall is not None:
            self.recorder.record(call, kind, functools.partial(call.errcall, kind, flag))

    def write(self, message: str) -> None:
        """Record a line of a log."""
        call = self.current()
        if call.errcall is not None:
            self.recorder.record(call, message, functools.partial(call.errcall.write, message))
