"""Ctrl-C is not lost, even where Python ignores the exception it raises."""

from __future__ import annotations

import signal
from contextlib import suppress

import pytest

from spliter_experiments.harness.console import remembered_interrupt


def test_interrupt_that_was_swallowed_is_raised_again() -> None:
    before = signal.getsignal(signal.SIGINT)
    with remembered_interrupt() as check:
        check()
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                check()
    assert signal.getsignal(signal.SIGINT) is before
