"""Run as a script: ends the services of an embedded cluster once their owner is gone.

It is the leader of the process group that the services join. Its standard input is a pipe that
the owner holds open. An owner that cleaned up by itself says so through it; when it closes
without a word, whatever is left of the group ends and the folder given as argument is removed.
So nothing survives an owner that was killed.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time

LOOK_SECONDS = 1.0
END_SECONDS = 5.0


def owner_cleaned_up(owner: int) -> bool:
    """Return when something is said, the pipe closed, or the owner no longer the parent.

    A process that the owner forked may hold a copy of the pipe, hence the last.
    """
    while os.getppid() == owner:
        if select.select([sys.stdin], [], [], LOOK_SECONDS)[0]:
            return bool(os.read(sys.stdin.fileno(), 1))
    return False


def end(group: int) -> None:
    """Kill until nobody is left: a folder can be removed once nobody writes to it any more."""
    deadline = time.monotonic() + END_SECONDS
    while time.monotonic() < deadline:
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            return
        time.sleep(0.02)


def main(folder: str, owner: int) -> None:
    """Wait for the end of the owner, then end the group and remove the folder."""
    if owner_cleaned_up(owner):
        return
    group = os.getpgrp()
    if os.fork():
        signal.pause()
    # Who kills a group has to be outside it.
    os.setpgid(0, 0)
    end(group)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
