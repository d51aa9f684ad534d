"""A Split, its partitions and its futures in a forked process: an error, and no hang."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest

from tests.running import run_command

pytestmark = pytest.mark.thorough

PROGRAM = Path(__file__).parent / "programs" / "split_forked.py"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize(
    "engine",
    [
        pytest.param(name, marks=pytest.mark.backend(name))
        for name in ("local", "dask", "ray", "dataclay")
    ],
)
def test_a_forked_process_cannot_use_the_engine(engine: str) -> None:
    command = [sys.executable, "-W", "ignore", str(PROGRAM), engine]
    # Ray's folder has a short path: that of a socket is 107 characters at most.
    with tempfile.TemporaryDirectory(prefix="r", dir="/tmp", ignore_cleanup_errors=True) as made:
        environment = {**os.environ, "RAY_TMPDIR": made}
        ended = run_command(command, env=environment, check=True)
    length, submitted, one, again, gathered, split, *parent = ended.stdout.split()
    refused = "ForkedError"
    if engine == "local":
        assert (submitted, again, gathered, split) == ("18", "None", "18", length)
    else:
        assert (submitted, one, again, split) == (refused, refused, refused, refused)
        assert gathered in ("18", refused)  # results that are here need no connection
    assert parent == ["18"]
