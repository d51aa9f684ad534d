"""Script that ends the services of an embedded cluster when their owner has died.

It is the leader of the process group that the services join. Its standard input is a pipe held open
by the owner. An owner that has cleaned up writes to it. If the pipe closes without a message, the
script kills the rest of the group and removes the folder given as argument, so that nothing
survives an owner that was killed.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time
from pathlib import Path

CHECK_SECONDS = 1.0
END_SECONDS = 5.0


def owner_cleaned_up(owner: int) -> bool:
    """Wait for a message, the pipe's end or another parent; return whether there was a message.

    The parent is checked because a process forked by the owner may hold a copy of the pipe.
    """
    while os.getppid() == owner:
        if select.select([sys.stdin], [], [], CHECK_SECONDS)[0]:
            return bool(os.read(sys.stdin.fileno(), 1))
    return False


def end(group: int) -> None:
    """Kill the group until it is empty, so that no process writes to the folder being removed."""
    deadline = time.monotonic() + END_SECONDS
    while time.monotonic() < deadline:
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            return
        time.sleep(0.02)


def remove(folder: str) -> None:
    """Remove the folder, again while a process that is being killed still writes to it."""
    deadline = time.monotonic() + END_SECONDS
    while Path(folder).exists() and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.02)


def main(folder: str, owner: int) -> None:
    """Wait for the end of the owner, then end the group and remove the folder."""
    if owner_cleaned_up(owner):
        return
    group = os.getpgrp()
    if os.fork():
        signal.pause()
    # Leave the group before killing it.
    os.setpgid(0, 0)
    end(group)
    remove(folder)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
