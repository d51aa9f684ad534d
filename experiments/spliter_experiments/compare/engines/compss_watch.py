"""Tell whoever has launched a COMPSs application whether it gets on.

Waiting for a COMPSs task can neither be interrupted nor watched from within: PyCOMPSs waits in
native code, where no other thread of Python runs, and COMPSs waits for ever for a node that has not
come up. So the application writes down until when it is to be heard from again, and its launcher,
which is another process, ends it if it is not.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

LAUNCHED = "SPLITER_COMPSS_LAUNCHED"
"""Variable of the environment that tells the command inside its arguments, and the nodes."""

STARTING = "starting the nodes"
"""What is waited for first."""

START_SECONDS = 120
"""How long an application may take until all of its nodes have run a task."""


@dataclass(frozen=True)
class Progress:
    """A file in which an application says until when it is to be heard from again.

    Examples
    --------
    >>> Progress(None).tell(60, "a way")
    """

    file: Path | None

    def tell(self, seconds: float, about: str) -> None:
        """Promise the next sign of life."""
        if self.file is None:
            return
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps({"until": time.time() + seconds, "about": about}))
        new.replace(self.file)

    def overdue(self) -> str | None:
        """Return what has been waited for too long, if something has."""
        if self.file is None:
            return None
        told = json.loads(self.file.read_text())
        return str(told["about"]) if time.time() > told["until"] else None


def launched_resources() -> Path | None:
    """Return the resources file of the application, where :func:`launch` has started it."""
    told = os.environ.get(LAUNCHED)
    return None if told is None else Path(json.loads(told)["resources"])


def launched_progress() -> Progress:
    """Return where the application tells that it gets on; nowhere if nobody watches it."""
    told = os.environ.get(LAUNCHED)
    return Progress(None if told is None else Path(json.loads(told)["progress"]))


def launched_arguments() -> list[str]:
    """Return the arguments that the command was launched with."""
    return list(json.loads(os.environ[LAUNCHED])["arguments"])
