"""Pending calls on the rows of a Split: when passes run, and what becomes of values afterwards.

:mod:`.passes` sends them to the partitions.
"""

from __future__ import annotations

import contextlib
import itertools
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

from spliter._errors import InvalidArgumentError, WholeArrayError
from spliter._split import Split
from spliter.pipeline._calls.calls import Call, Node, Typing
from spliter.pipeline._calls.graph import RUNNING, Graph
from spliter.pipeline._calls.metas import Meta
from spliter.pipeline._calls.sites import Site, used_in_pieces
from spliter.pipeline._over_split.passes import Passes
from spliter.pipeline._over_split.tasks import FAILED
from spliter.pipeline._planning.columns import narrow
from spliter.pipeline._planning.planner import needed, with_makers
from spliter.pipeline._running.evaluate import claim, run_whole
from spliter.pipeline._running.lost import note_raised
from spliter.pipeline._running.recorded_warnings import WarningRecorder
from spliter.pipeline._values.lazy import Lazy, give_copies

_NUMBERS = itertools.count()


class SplitGraph(Graph):
    """Pending calls on the rows of a Split.

    Parameters
    ----------
    split : Split
    metas : sequence of ArrayMeta or FrameMeta
        Of the rows of each of its collections.
    """

    def __init__(self, split: Split, metas: Sequence[Meta]) -> None:
        super().__init__(returns=True)
        self.passes = Passes(split, metas)
        self.recorder = WarningRecorder()
        self.is_running = False
        """Whether it sends calls to tasks, and waits for them."""
        self.within = RUNNING.get()
        """Of the function on pieces that has called the pipeline, if any."""
        self.rank = True, next(_NUMBERS)
        self.given_up: list[Call] = []
        """Calls that were pending with one that has failed."""
        self.failed: set[int | None] = set()
        """Numbers of calls that have failed in tasks; ``None`` for errors of no call."""
        self.has_failed = False
        """Whether there may be values that no pending call makes."""
        self.watched: weakref.finalize[..., Any] | None = None
        """Of rows that the program holds after the pipeline has ended."""

    def __enter__(self) -> Graph:
        """Lock the graph; refuse to in a task that the client waits for, or is sending."""
        if RUNNING.get() not in (None, self.within):
            raise used_in_pieces()
        locked = super().__enter__()
        if self.is_running:
            self.__exit__()
            raise used_in_pieces()
        return locked

    @contextlib.contextmanager
    def _claimed(self) -> Iterator[None]:
        """Lock the graph for this thread; remember the errors that the program gets."""
        with self:
            claim(self)
            try:
                yield
            except Exception as error:
                note_raised(self, error)
                raise

    def check_at_client(self, node: Node) -> None:
        """Raise if a value is distributed, as the client does not fetch its rows."""
        with self._claimed():
            if not self.is_distributed(node):
                return
            self.settle()  # an error of a task says more
        split = self.passes.split
        raise WholeArrayError(
            f"{Site.of_caller()} needs all rows of a value over {split!r} in the client's "
            f"memory, about {split.nbytes} bytes; reduce it first, return it and use the "
            "collection, annotate a function of rows by splittable, or pass arrays or frames "
            "instead of the Split"
        )

    def length_of(self, node: Node) -> int | None:
        """Return the number of rows of a distributed value, counted where they are."""
        with self._claimed():
            if not self.is_distributed(node):
                return None
            self.passes.check_rows(node)
            with self._undone_if_it_fails():
                return self.passes.count(node)

    def first_rows(self, node: Node) -> Any:
        """Return what is known of the first rows of a value; of a collection, ask for them."""
        return self.passes.first_rows(node)

    def whole(self, node: Node) -> Any:
        """Return a number, for which a pass has to run before that of the call."""
        with self._claimed():
            if self.is_distributed(node):
                raise LookupError("it has rows")
            return node.data

    def learn(self, node: Node) -> None:
        """Evaluate a value of which nothing is known; set its meta if it has rows."""
        with self._claimed():
            if self.is_distributed(node) and not self.passes.has_columns(node):
                with self._undone_if_it_fails():
                    self.passes.learn(node)

    def first_row(self, node: Node) -> Any:
        """Return a row of a value, for which its calls run."""
        with self._claimed():
            before, held = node.lazy, Lazy(node, self)  # the program need not hold it
            try:
                row = None
                if self.is_distributed(held._node):
                    with self._undone_if_it_fails():
                        row = self.passes.first_row(node)
            finally:
                node.lazy = before
            if row is None or not len(row):
                raise LookupError("it has no rows")
            return row

    def evaluate(self) -> bool:
        """Run all pending calls, in as many passes as they need."""
        self.locks.end()
        pending, self.pending = self._with_lost(needed(self.pending)), []
        if not self.has_failed:  # else calls that are none of these may need what others have made
            narrow(pending)
        self.recorder = WarningRecorder()
        self.is_running = True
        tried = pending
        try:
            with self._undone_if_it_fails():
                while pending:
                    before, pending = pending, self._run_pass(pending)
                    if pending == before:
                        raise InvalidArgumentError(
                            f"{pending[0].place} uses a value that another pipeline has not "
                            "computed yet; evaluate it before, as float(n) and np.asarray(x) do"
                        )
        except BaseException:
            self.given_up += tried
            raise
        finally:
            self.is_running = False
        if not self.rank[0]:
            self.free()
        self.recorder.report()
        return True

    def _with_lost(self, pending: list[Call]) -> list[Call]:
        """Return calls, with those of which a result was not stored, as another one was."""
        kinds = self.passes.kinds
        while lost := {
            node.call
            for call in pending
            for node in call.inputs
            if node.call is not None and node.call.has_run and node not in kinds
        }:
            for each in lost:
                each.has_run = False
            pending = with_makers(pending)
        return pending

    def finish(self, *, has_failed: bool = False) -> None:
        """Compute all that the program holds.

        Parameters
        ----------
        has_failed : bool
            Whether the body has: calls before may have, too, and their errors come first.
        """
        with self:
            if not has_failed:
                self.evaluate()
            error = self._error_of(self.pending) if has_failed else None
            if self.given_up:
                self._recover()
            try:
                if error is not None:
                    raise error
            finally:
                del error  # it refers to this frame

    def _recover(self) -> None:
        """Compute what the program holds after an error, but for what follows from calls that fail.

        These raise again where it is used.
        """
        calls = with_makers(self.given_up)
        waiting = self._waiting(calls)
        if waiting and self._error_of(waiting) is not None:  # another one has failed
            for call in waiting:
                if call in self._waiting(calls):
                    self._error_of([call])
        self.given_up = []

    def _waiting(self, calls: Sequence[Call]) -> list[Call]:
        """Return the calls whose results the program holds and does not have, and that can run."""
        lost: set[Call] = set()
        for call in calls:  # in program order
            if call.number in self.failed or any(node.call in lost for node in call.inputs):
                lost.add(call)

        def is_missing(node: Node) -> bool:
            return node.is_held and node.is_pending and node not in self.passes.kinds

        return [
            call
            for call in calls
            if call not in lost and any(is_missing(node) for _, node in call.live_outputs())
        ]

    def _error_of(self, calls: Sequence[Call]) -> Exception | None:
        """Run calls; return the error that one of them raises."""
        self.pending = [*calls]
        try:
            self.evaluate()
            self.settle()
        except Exception as error:  # noqa: BLE001 -- of others, or raised again where it is used
            return error
        return None

    @contextlib.contextmanager
    def _undone_if_it_fails(self) -> Iterator[None]:
        """Go back to the last pass that has succeeded; values needed later are computed anew."""
        try:
            yield
        except BaseException as error:  # Ctrl-C, too
            self.has_failed = True
            self.failed.add(getattr(error, FAILED, None))
            self.given_up += self.passes.undo()
            raise

    def end(self) -> bool:
        """Make values at the client like others if the program holds no rows; return whether."""
        self.rank = False, self.rank[1]
        is_free = self.free() and not self.has_failed
        if is_free:
            Graph(returns=False).absorb(self)
        return is_free

    def free(self) -> bool:
        """Free what is at the partitions once the program holds no rows; return whether it has.

        What pending calls take stays: blocks of the caller may have changed since.
        """
        if self.is_running or not self.lock.acquire(blocking=False):
            return False
        try:
            nodes = (*self.passes.members, *self.passes.kinds)
            held = next((node.lazy() for node in nodes if node.lazy and node.is_held), None)
            is_free = held is None and not needed(self.pending)
            if is_free:
                self.passes.free(for_good=not self.has_failed)
            elif held is not None and (self.watched is None or not self.watched.alive):
                self.watched = weakref.finalize(held, _free, weakref.ref(self))
                self.watched.atexit = False
            return is_free
        finally:
            self.lock.release()

    def settle(self) -> None:
        """Wait for the tasks, and raise what they have raised."""
        with self._undone_if_it_fails():
            self.passes.settle()

    def is_distributed(self, node: Node) -> bool:
        """Evaluate a value, and return whether it has rows, which stay at the partitions."""
        if node.call is not None and node not in self.passes.kinds:
            self.pending.append(node.call)  # it is not pending after a pass that failed
        self.evaluate()
        return node in self.passes.kinds

    def _run_pass(self, pending: list[Call]) -> list[Call]:
        chosen: list[tuple[Call, Typing]] = []
        elsewhere = self.passes.kinds
        postponed: list[Call] = []
        for call in pending:
            if any(node.is_pending and node not in elsewhere for node in call.inputs):
                postponed.append(call)
            elif not any(node in elsewhere for node in call.inputs):
                run_whole(self, [call], self.recorder)
                give_copies([call])
            else:
                chosen.append((call, self.passes.place(call)))
        if chosen:
            self.passes.run(chosen, postponed, self.recorder)
        return postponed

    def collection_of(self, node: Node) -> Any:
        """Return the collection of a result with rows, blocked like the Split."""
        self.passes.check_rows(node)
        if node.meta is None:
            self.learn(node)
        return self.passes.collection_of(node)


def _free(reference: weakref.ref[SplitGraph]) -> None:
    """Free what a graph has at the partitions, if it exists: errors that it has may refer to it."""
    if (graph := reference()) is not None:
        graph.free()
