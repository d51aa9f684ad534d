"""Future of a SplIter task on COMPSs: PyCOMPSs' own future with a ``result`` method."""

from __future__ import annotations

from typing import Any

from spliter import BlockLostError, Location, TaskFailedError
from spliter_backends.compss.api import Future, compss_wait_on
from spliter_backends.compss.outcome import unwrap_task_error


class CompssFuture(Future):  # type: ignore[misc]
    """A PyCOMPSs future of a task's result, with a ``result`` method.

    PyCOMPSs creates it, as the class that the task declares to return, so it is tracked like any
    other future: ``compss_wait_on`` and tasks accept it.

    Notes
    -----
    Waiting cannot be interrupted: PyCOMPSs waits in native code. COMPSs itself ends the
    application if a task cannot run or its process was killed;
    ``runcompss --wall_clock_limit=SECONDS`` bounds tasks that hang.
    """

    def __init__(self) -> None:
        super().__init__()
        self.key = ""
        self.location: Location | None = None
        self.outcome: tuple[Any, BaseException | None] | None = None
        """Result and error, once they are in this process (for the backend)."""

    def _wait_for_outcome(self) -> tuple[Any, BaseException | None]:
        if self.outcome is None:
            try:
                value = compss_wait_on(self)
            except Exception as raised:
                # PyCOMPSs wraps errors raised by unpickling.
                error = unwrap_task_error(raised)
                if error is None:
                    raise
                self.outcome = None, error
            else:
                if value is self:
                    raise BlockLostError(
                        "PyCOMPSs has no record of this future: it was deleted "
                        "(compss_delete_object), or its application has ended; run the task again"
                    )
                if self.outcome is None:
                    if value is None:  # a None result would have set the outcome
                        raise TaskFailedError(
                            "COMPSs has no result for this task: it failed or was cancelled, and "
                            "COMPSs ends the application. See its messages ([ERRMGR]) and the "
                            "folder jobs of its log"
                        )
                    self.outcome = value, None
        return self.outcome

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the task and return its result.

        Parameters
        ----------
        timeout : float, optional
            Ignored; accepted for compatibility with other futures. PyCOMPSs cannot stop waiting.

        Raises
        ------
        BaseException
            The error of the task.
        """
        value, error = self._wait_for_outcome()
        if error is not None:
            raise error
        return value

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the task and return its error, or ``None``; `timeout` is ignored."""
        return self._wait_for_outcome()[1]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the result, waiting for it.

        PyCOMPSs replaces futures among the arguments of a task, except those it has already
        waited for, which are pickled.
        """
        return _identity, (self.result(),)

    def __repr__(self) -> str:
        """Return the key, and whether the result has been fetched."""
        state = "pending" if self.outcome is None else "fetched"
        return f"<CompssFuture {self.key[:8]}: {state}>"


def _identity(value: Any) -> Any:
    return value
