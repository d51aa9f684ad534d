"""Running commands in tests: bounded, with what they print."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Any


def run_command(
    command: Sequence[Any], timeout: float = 240, check: bool = False, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command; return what it prints and how it ends."""
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, check=check, **options
    )
