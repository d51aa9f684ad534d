"""What a run of the chaos suite may end in, and the record that is kept of it."""

from __future__ import annotations

import enum
import json
import traceback
from dataclasses import dataclass, field
from typing import Any

from spliter import SplIterError

SHOWN = 400
"""Characters of an error's message that are kept."""


class Outcome(enum.StrEnum):
    """What a run has ended in; the first two are as they should be."""

    RIGHT = "right"
    TYPED = "typed error"
    WRONG = "WRONG"
    HANG = "HANG"
    UNTYPED = "UNTYPED ERROR"

    @property
    def is_good(self) -> bool:
        """Whether the promise was kept: the right answer, or an error that says what is lost."""
        return self in {Outcome.RIGHT, Outcome.TYPED}


class WrongAnswerError(AssertionError):
    """An application has returned something else than NumPy or scikit-learn."""


@dataclass(frozen=True)
class Struck:
    """A fault that was carried out, or tried.

    Parameters
    ----------
    kind : str
        What it was.
    at : float
        Seconds after the start when it was done.
    what : str
        To whom, or what stood in its way.
    done : bool
        Whether it has happened.
    """

    kind: str
    at: float
    what: str
    done: bool


@dataclass(frozen=True)
class Record:
    """One run.

    Parameters
    ----------
    case : dict
        What was meant, see :meth:`Case.described`.
    outcome : Outcome
        What came of it.
    error : str
        Type of the error, if it ended in one.
    message : str
        What the error said; the stacks of all threads after a hang.
    struck : tuple of Struck
        The faults.
    rounds : int
        Right answers.
    seconds : float
        How long the program ran.
    left : str
        What was still at the workers after the program had let go of everything; nothing if all
        is well.
    """

    case: dict[str, Any]
    outcome: Outcome
    error: str = ""
    message: str = ""
    struck: tuple[Struck, ...] = field(default=())
    rounds: int = 0
    seconds: float = 0.0
    left: str = ""

    @property
    def seed(self) -> int:
        """Of the case."""
        return int(self.case["seed"])

    @property
    def is_good(self) -> bool:
        """Whether every promise was kept."""
        return self.outcome.is_good and not self.left

    def line(self) -> str:
        """Return it as one line of JSON."""
        told = vars(self) | {"struck": [vars(one) for one in self.struck]}
        return json.dumps(told)

    @classmethod
    def from_line(cls, line: str) -> Record:
        """Read it again.

        Parameters
        ----------
        line : str
            What :meth:`line` returned.

        Returns
        -------
        Record
            The same.

        Examples
        --------
        >>> record = Record({"seed": 3}, Outcome.RIGHT, struck=(Struck("kill", 0.1, "", True),))
        >>> Record.from_line(record.line()) == record
        True
        """
        told = json.loads(line)
        told["outcome"] = Outcome(told["outcome"])
        told["struck"] = tuple(Struck(**one) for one in told["struck"])
        return cls(**told)


def outcome_of(
    error: BaseException | None, engine_errors: tuple[type[BaseException], ...]
) -> Outcome:
    """Say what a program that ended with an error, or without, has ended in.

    Parameters
    ----------
    error : BaseException or None
        What it raised.
    engine_errors : tuple of type
        Errors of the engine that users of it know, and that say what happened.

    Returns
    -------
    Outcome
        Never ``HANG``.
    """
    if error is None:
        return Outcome.RIGHT
    if isinstance(error, WrongAnswerError):
        return Outcome.WRONG
    if isinstance(error, (SplIterError, *engine_errors)):
        return Outcome.TYPED
    return Outcome.UNTYPED


def told(error: BaseException, outcome: Outcome) -> str:
    """Return the message of an error, with its traceback where it is not one of ours.

    Parameters
    ----------
    error : BaseException
        What a program raised.
    outcome : Outcome
        What that counts as.

    Returns
    -------
    str
        Cut if it is long.
    """
    if outcome.is_good:
        return str(error)[:SHOWN]
    return "".join(traceback.format_exception(error))[-10 * SHOWN :]
