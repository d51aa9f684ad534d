"""The future of a SplIter task on COMPSs: PyCOMPSs' own, that can also be asked."""

from __future__ import annotations

from typing import Any

from spliter import BlockLostError, Location, TaskFailedError
from spliter_backends.compss.api import Future, compss_wait_on
from spliter_backends.compss.outcome import task_error_in


class CompssFuture(Future):  # type: ignore[misc]
    """What stands for the result of a task: a PyCOMPSs future with a ``result`` method.

    PyCOMPSs makes it, as the class that the task declares to return, so it is tracked like any
    other future: ``compss_wait_on`` takes it, and tasks take it as an argument.

    Notes
    -----
    Waiting cannot be interrupted: PyCOMPSs waits in native code. COMPSs itself ends the
    application when a task cannot be run, or its process was killed;
    ``runcompss --wall_clock_limit=SECONDS`` bounds tasks that hang.
    """

    def __init__(self) -> None:
        super().__init__()
        self.key = ""
        self.location: Location | None = None
        self._outcome: tuple[Any, BaseException | None] | None = None

    def settle(self, value: Any, error: BaseException | None) -> None:
        """Take the outcome (for the backend).

        Parameters
        ----------
        value : object
            The result.
        error : BaseException or None
            What the task raised, if it did.
        """
        self._outcome = value, error

    @property
    def outcome(self) -> tuple[Any, BaseException | None] | None:
        """Result and error, once they are in this process."""
        return self._outcome

    def _waited_for(self) -> tuple[Any, BaseException | None]:
        if self._outcome is None:
            try:
                value = compss_wait_on(self)
            except Exception as raised:
                # The binding wraps what unpickling raises.
                error = task_error_in(raised)
                if error is None:
                    raise
                self._outcome = None, error
            else:
                if value is self:
                    raise BlockLostError(
                        "PyCOMPSs does not know this future any more: it was deleted "
                        "(compss_delete_object), or the application it was made in has stopped"
                    )
                if self._outcome is None:
                    if value is None:  # a task's own None would have set the outcome
                        raise TaskFailedError(
                            "COMPSs has no result for this task: it failed or was cancelled, and "
                            "COMPSs ends the application. Its messages ([ERRMGR]) and the folder "
                            "jobs of its log say why"
                        )
                    self._outcome = value, None
        return self._outcome

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the task and return its result, as often as one likes.

        Parameters
        ----------
        timeout : float, optional
            Taken for the sake of other engines' futures; PyCOMPSs cannot stop waiting.

        Returns
        -------
        object
            What the function returned.

        Raises
        ------
        BaseException
            What it raised.
        """
        value, error = self._waited_for()
        if error is not None:
            raise error
        return value

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the task and return what it raised.

        Parameters
        ----------
        timeout : float, optional
            As for :meth:`result`.

        Returns
        -------
        BaseException or None
            ``None`` if it returned.
        """
        return self._waited_for()[1]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the result, which then has to be here.

        The binding replaces futures among the arguments of a task. One that has been waited for
        it does not know any more, and pickles.
        """
        return _same, (self.result(),)

    def __repr__(self) -> str:
        """Return where it is, and whether its result has been fetched."""
        state = "pending" if self._outcome is None else "fetched"
        return f"<CompssFuture {self.key[:8]}: {state}>"


def _same(value: Any) -> Any:
    return value
