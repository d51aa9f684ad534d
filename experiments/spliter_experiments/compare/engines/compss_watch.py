"""Report the progress of a COMPSs application to the process that launched it.

PyCOMPSs waits for tasks in native code, where no Python thread runs and no signal arrives, and
COMPSs waits forever for a node that does not start. So the application writes a deadline for its
next report to a file, and its launcher, a separate process, ends it after that deadline.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

LAUNCHED = "SPLITER_COMPSS_LAUNCHED"
"""Environment variable with the arguments and nodes of the command inside COMPSs."""

STARTING = "starting the nodes"
"""Activity reported until all nodes have started."""

START_SECONDS = 120
"""Maximum time until all nodes have run a task."""


@dataclass(frozen=True)
class Progress:
    """File with the deadline of an application's next report; None if no process watches it.

    Examples
    --------
    >>> Progress(None).tell(60, "a way")
    """

    file: Path | None

    def tell(self, seconds: float, about: str) -> None:
        """Set the deadline of the next report."""
        if self.file is None:
            return
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps({"until": time.time() + seconds, "about": about}))
        new.replace(self.file)

    def overdue(self) -> str | None:
        """Return the current activity if its deadline has passed, else None."""
        if self.file is None:
            return None
        told = json.loads(self.file.read_text())
        return str(told["about"]) if time.time() > told["until"] else None


def launched_resources() -> Path | None:
    told = os.environ.get(LAUNCHED)
    return None if told is None else Path(json.loads(told)["resources"])


def launched_progress() -> Progress:
    told = os.environ.get(LAUNCHED)
    return Progress(None if told is None else Path(json.loads(told)["progress"]))


def launched_arguments() -> list[str]:
    return list(json.loads(os.environ[LAUNCHED])["arguments"])
