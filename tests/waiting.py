"""Waiting in tests: bounded, and an error when what was waited for never comes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def wait_until(holds: Callable[[], Any], seconds: float = 120) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not so after {seconds} s"
        time.sleep(0.02)


def wait_until_made(file: Path) -> None:
    """Wait for a file with which a task announces that it runs."""
    wait_until(file.exists)
