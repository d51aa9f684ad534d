"""Processes that are forked while a pipeline runs get the right values or an error, and end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "programs" / "pipeline_forked.py"
TOTAL = "200000.0"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize(
    ("scenario", "written"),
    [
        ("with_pending_calls", [TOTAL, TOTAL]),
        ("next_to_a_run", [TOTAL, TOTAL, "ForkedError", "ForkedError", TOTAL]),
        ("in_a_batch", ["ForkedError", TOTAL]),
    ],
)
def test_forks_get_the_right_values_or_an_error(scenario: str, written: list[str]) -> None:
    command = [sys.executable, "-W", "ignore", str(PROGRAM), scenario]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert sorted(ended.stdout.split()) == sorted(written)
