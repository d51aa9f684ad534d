"""What a chaos run needs of an engine: a cluster that may be harmed, and is whole again after."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Self

from spliter_experiments.chaos.cases import Case, Fault
from spliter_experiments.chaos.programs import Array, Collections


class NothingToStrikeError(Exception):
    """A fault has found nobody, or nothing, that it could happen to."""


class Arena(ABC):
    """A cluster of one engine; a context manager.

    Attributes
    ----------
    engine_errors : tuple of type
        Errors of the engine, besides those of SplIter, that a program may end in: they say what
        happened, and are documented.
    """

    engine_errors: tuple[type[BaseException], ...] = ()

    @abstractmethod
    def begin(self, case: Case, arrays: tuple[Array, ...]) -> Collections:
        """Make the cluster whole, connect to it, and put the data where the case has them.

        Returns one collection per array.
        """

    @abstractmethod
    def strike(self, fault: Fault) -> str:
        """Do a fault to the cluster; say to whom. What lasts is ended by :meth:`relent`."""

    @abstractmethod
    def relent(self, fault: Fault) -> None:
        """End a fault that lasts."""

    @abstractmethod
    def end(self) -> str:
        """Let go of the data of the run; say what is left at the workers although it should not."""

    def state(self) -> str:
        """Return what the engine says of work that does not end, for somebody to find out why."""
        return ""

    @abstractmethod
    def close(self, *, abandoned: bool = False) -> None:
        """End the cluster; by force where a program still hangs on it."""

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()


def pick(fault: Fault, candidates: Any) -> Any:
    """Return the one that a fault is meant for, of those that are there.

    Parameters
    ----------
    fault : Fault
        What happens.
    candidates : iterable
        Sorted, so that the same fault hits the same one.

    Returns
    -------
    object
        One of them.

    Raises
    ------
    NothingToStrikeError
        If there are none.
    """
    found = list(candidates)
    if not found:
        raise NothingToStrikeError("there is nothing to strike")
    return found[fault.target % len(found)]
