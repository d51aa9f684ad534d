"""Tell whoever has launched a COMPSs application whether it gets on.

Waiting for a COMPSs task can neither be interrupted nor watched from within: PyCOMPSs waits in
native code, where no other thread of Python runs, and COMPSs waits for ever for a node that has not
come up. So the application writes down until when it is to be heard from again, and its launcher,
which is another process, ends it if it is not.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

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
