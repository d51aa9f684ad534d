"""One run of the chaos suite: place the data, let the adversary loose, judge what comes of it."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from typing import Final

import numpy as np

from spliter_experiments.chaos.adversary import Adversary
from spliter_experiments.chaos.arena import Arena
from spliter_experiments.chaos.cases import Case
from spliter_experiments.chaos.outcomes import Outcome, Record, WrongAnswerError, outcome_of, told
from spliter_experiments.chaos.programs import PROGRAMS, Answer, Array, Collections, rounds

HANG_SECONDS: Final = 120.0
"""A program that has not ended then hangs. Far above what any bound of an engine allows here, so
that a busy machine is not taken for a hang."""


class _Play:
    """A program in a thread of its own, which a hang leaves behind."""

    def __init__(
        self, case: Case, collections: Collections, arrays: tuple[Array, ...], adversary: Adversary
    ) -> None:
        program = PROGRAMS[case.app]
        expected = program.expected(arrays)
        self.right = 0
        self.failure: BaseException | None = None
        self._adversary = adversary
        self._is_last = False

        def judge(answer: Answer) -> None:
            difference = program.difference(answer, expected, arrays)
            if difference:
                raise WrongAnswerError(difference)
            self.right += 1

        def play(collections: Collections) -> None:
            try:
                rounds(case, collections, arrays, self._go_on, judge)
            except BaseException as error:  # noqa: BLE001 -- the outcome of the run
                self.failure = error

        # The thread lets go of its arguments when it ends.
        self.thread = threading.Thread(
            target=play, args=(collections,), name="chaos-program", daemon=True
        )

    def _go_on(self) -> bool:
        """One more round begins after the last fault is over."""
        was_last, self._is_last = self._is_last, self._adversary.is_done
        return not was_last


def run_case(case: Case, arena: Arena, hang_seconds: float = HANG_SECONDS) -> Record:
    """Run one case.

    Parameters
    ----------
    case : Case
        What to do.
    arena : Arena
        Where. After a hang it has to be abandoned.
    hang_seconds : float
        Bound of the run.

    Returns
    -------
    Record
        What came of it.
    """
    arrays = PROGRAMS[case.app].data(np.random.default_rng(case.seed), sum(case.rows))
    adversary = Adversary(arena, case.faults)
    play = _Play(case, arena.begin(case, arrays), arrays, adversary)
    start = time.monotonic()
    adversary.begin()
    play.thread.start()
    play.thread.join(hang_seconds)
    seconds = round(time.monotonic() - start, 3)
    stacks = f"{arena.state()}\n{_stacks()}" if play.thread.is_alive() else ""
    struck = adversary.end()
    described = case.described()
    if stacks:
        return Record(described, Outcome.HANG, "", stacks, struck, play.right, seconds, "all of it")
    outcome = outcome_of(play.failure, arena.engine_errors)
    error, message = "", ""
    if play.failure is not None:
        error, message = type(play.failure).__name__, told(play.failure, outcome)
        play.failure = None  # its traceback holds on to what the program used
    return Record(described, outcome, error, message, struck, play.right, seconds, arena.end())


def _stacks() -> str:
    """Return where all threads are."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"--- {names.get(ident, ident)}\n{''.join(traceback.format_stack(frame)[-12:])}"
        for ident, frame in sys._current_frames().items()
    )
