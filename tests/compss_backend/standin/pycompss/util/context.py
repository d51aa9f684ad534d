"""Where this process stands: master, worker, or neither (no runtime)."""

from __future__ import annotations

from typing import Literal

Where = Literal["MASTER", "WORKER", "OUT_OF_SCOPE"]


class Context:
    """What the binding asks to know what a call of a task means."""

    def __init__(self) -> None:
        self.where: Where = "OUT_OF_SCOPE"

    def in_master(self) -> bool:
        """Whether this is the main program of a running application."""
        return self.where == "MASTER"

    def in_worker(self) -> bool:
        """Whether this process runs tasks."""
        return self.where == "WORKER"

    def in_pycompss(self) -> bool:
        """Whether there is a runtime."""
        return self.where != "OUT_OF_SCOPE"

    def is_nesting_enabled(self) -> bool:
        """Whether tasks may start tasks."""
        return False


CONTEXT = Context()
