"""Pending calls on the rows of a Split, and the passes that run them in tasks."""

from __future__ import annotations

import contextlib
import functools
import itertools
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np

from spliter._errors import AnnotationError, InvalidArgumentError, WholeArrayError
from spliter._results import gather, reduce
from spliter._split import Split
from spliter.pipeline._columns import narrow
from spliter.pipeline._elementwise import ELEMENTWISE
from spliter.pipeline._evaluate import claim, run_whole
from spliter.pipeline._first_rows import MAX_ROWS
from spliter.pipeline._graph import RUNNING, Call, Graph, Node, Typing
from spliter.pipeline._lazy import Lazy, give_copies, is_array, is_frame
from spliter.pipeline._metas import ArrayMeta, FrameMeta, Meta
from spliter.pipeline._options import CURRENT
from spliter.pipeline._pass import (
    COMBINED,
    Pass,
    Ref,
    combine,
    example_of_result,
    first_row,
    first_rows,
    layout_of,
    merge_pair,
    partials,
    rows_of_result,
    run_pass,
    sent,
    with_no_rows,
)
from spliter.pipeline._planner import needed
from spliter.pipeline._site import Site, used_in_pieces
from spliter.pipeline._types import (
    Axis,
    Broadcast,
    Groups,
    Nothing,
    Reduction,
    SplitType,
    Unknown,
)
from spliter.pipeline._warnings import WarningRecorder, WithErrstate
from spliter.pipeline._without_rows import finish_without_rows

_NUMBERS = itertools.count()

ROWS = Unknown(-1)
"""Type of values with a row for each row of the Split, whose lengths each partition knows."""


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
        self.split = split
        self.partitions = list(split)
        self.partitions[0].indexes.check_whole_rows("the argument of a pipeline")
        self.carried: tuple[Node, ...] = ()
        self.futures: list[Any] = []
        self.kinds: dict[Node, SplitType] = {}
        self.recorder = WarningRecorder()
        self.members = [self._member(each) for each in metas]
        self.sound: tuple[list[Any], tuple[Node, ...], dict[Node, SplitType]]
        """What tasks have made that have succeeded."""
        self.sound = self.futures, self.carried, {**self.kinds}
        self.is_running = False
        """Whether it sends calls to tasks, and waits for them."""
        self.within = RUNNING.get()
        """Of the function on pieces that has called the pipeline, if any."""
        self.rows: tuple[Any, ...] | None = None
        """The first rows of each member, once they are known."""
        self.unsure: list[Call] = []
        """Calls of passes since then, which are not awaited."""
        self.rank = True, next(_NUMBERS)
        self.given_up: list[Call] = []
        """Calls that were pending with one that has failed."""
        self.has_failed = False
        """Whether there may be values that no pending call makes."""
        self.watched: weakref.finalize[..., Any] | None = None
        """Of rows that the program holds after the pipeline has ended."""

    def _member(self, meta: Meta) -> Node:
        call = Call(_rows_of_split, (), {}, ELEMENTWISE)
        call.has_run = True
        node = Node(None, call, meta)
        self.kinds[node] = ROWS
        return node

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
                self.raised.append(error)
                raise

    def check_at_client(self, node: Node) -> None:
        """Raise if a value is distributed, as the client does not fetch its rows."""
        with self._claimed():
            if not self.is_distributed(node):
                return
            self.settle()  # an error of a task says more
        raise WholeArrayError(
            f"{Site.of_caller()} needs all rows of a value over {self.split!r} in the client's "
            f"memory, about {self.split.nbytes} bytes; reduce it first, return it and use the "
            "collection, annotate a function of rows by splittable, or pass arrays or frames "
            "instead of the Split"
        )

    def length_of(self, node: Node) -> int | None:
        """Return the number of rows of a distributed value, counted where they are."""
        with self._claimed():
            return self._length_of(node)

    def _length_of(self, node: Node) -> int | None:
        if not self.is_distributed(node):
            return None
        if self.kinds[node] == ROWS:
            self.split.resolve_item_indexes()
            return sum(cast(int, partition.shape[0]) for partition in self.partitions)
        self._check_rows(node)
        output = self._output(node)
        with self._undone_if_it_fails():
            counts = [
                partition.submit(rows_of_result, future, output)
                for partition, future in zip(self.partitions, self.futures, strict=True)
            ]
            return int(sum(gather(counts)))

    def first_rows(self, node: Node) -> Any:
        """Return the first rows of a collection, of the first block that has any."""
        if node not in self.members:
            return None
        partitions = iter(self.partitions)
        while self.rows is None and (partition := next(partitions, None)) is not None:
            (self.rows,) = gather([partition.submit(first_rows, MAX_ROWS)])
        return self.rows and self.rows[self.members.index(node)]

    def whole(self, node: Node) -> Any:
        """Return a number, for which a pass has to run before that of the call."""
        with self._claimed():
            if self.is_distributed(node):
                raise LookupError("it has rows")
            return node.data

    def learn(self, node: Node) -> None:
        """Evaluate a value of which nothing is known; set its meta if it has rows."""
        with self._claimed():
            if not self.is_distributed(node) or self._has_columns(node):
                return
            row = self._first_row(node)
            if row is not None:  # of no rows, Python may have made another dtype
                output = self._output(node)
                self.futures = [
                    partition.submit(with_no_rows, future, output, row[:0])
                    for partition, future in zip(self.partitions, self.futures, strict=True)
                ]
            self._keep()
            if is_array(row):
                node.meta = ArrayMeta((None, *row.shape[1:]), row.dtype, exact=False)
            elif is_frame(row):
                node.meta = FrameMeta(row.iloc[:0].copy(), None, exact=False)

    def first_row(self, node: Node) -> Any:
        """Return a row of a value, for which its calls run."""
        with self._claimed():
            before, held = node.lazy, Lazy(node, self)  # the program need not hold it
            try:
                row = self._first_row(node) if self.is_distributed(held._node) else None
            finally:
                node.lazy = before
            if row is None or not len(row):
                raise LookupError("it has no rows")
            return row

    def _first_row(self, node: Node) -> Any:
        """Return a row of an array or a frame; none of it if it has none."""
        output = self._output(node)
        pairs = zip(self.partitions, self.futures, strict=True)
        with self._undone_if_it_fails():
            found = gather([each.submit(first_row, made, output) for each, made in pairs])
        return next((each for each in found if np.size(each)), found[0])

    def _has_columns(self, node: Node) -> bool:
        """Return whether the blocks of a value stand side by side."""
        kind = self.kinds[node]
        return isinstance(kind, Axis) and kind.axis != 0

    def _check_rows(self, node: Node) -> None:
        if self._has_columns(node):
            raise WholeArrayError(
                f"{cast(Call, node.call).place} gives columns of {self.split!r} by its annotation "
                f"{self.kinds[node]!r}, and collections have rows; transpose them in the function, "
                "or pass arrays or frames instead of the Split"
            )

    def evaluate(self) -> bool:
        """Run all pending calls, in as many passes as they need."""
        self.locks.end()
        pending, self.pending = needed(self.pending), []
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

    def finish(self, *, has_failed: bool = False) -> None:
        """Compute all that the program holds, also what was pending with a call that has failed.

        Parameters
        ----------
        has_failed : bool
            Whether the pipeline has: rows are waited for then, as they may have.
        """
        with self:
            try:
                self.evaluate()
                if has_failed:
                    self.settle()
            finally:
                given_up, self.given_up = self.given_up, []
                for call in given_up:
                    if any(node.is_held and node.is_pending for _, node in call.live_outputs()):
                        self.pending.append(call)
                        with contextlib.suppress(Exception):  # raised again where it is used
                            self.evaluate()
                            self.settle()

    @contextlib.contextmanager
    def _undone_if_it_fails(self) -> Iterator[None]:
        """Go back to the last pass that has succeeded; values needed later are computed anew."""
        try:
            yield
        except BaseException:  # Ctrl-C, too
            self.has_failed = True
            self.futures, self.carried, kinds = self.sound
            self.kinds = {**kinds}
            for call in self.unsure:
                call.has_run = False
            self.given_up += self.unsure
            self.unsure.clear()
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
            nodes = (*self.members, *self.kinds)
            held = next((node.lazy() for node in nodes if node.lazy and node.is_held), None)
            is_free = held is None and not needed(self.pending)
            if is_free:
                self.futures, self.carried = [], ()
                self._forget()
                self._keep()
                if not self.has_failed:
                    self.partitions = []
                    vars(self).pop("split", None)  # values refer to this graph
            elif held is not None and (self.watched is None or not self.watched.alive):
                self.watched = weakref.finalize(held, _free, weakref.ref(self))
                self.watched.atexit = False
            return is_free
        finally:
            self.lock.release()

    def _forget(self) -> None:
        """Forget values that are not stored: nobody needs them now."""
        stored = {node.call for node in self.carried}
        for node in self.kinds.keys() - {*self.members, *self.carried}:
            if node.call is not None and node.call not in stored:
                node.call.has_run = False
            del self.kinds[node]

    def settle(self) -> None:
        """Wait for the tasks, and raise what they have raised."""
        with self._undone_if_it_fails():
            gather(self.futures)
        self._keep()

    def _keep(self) -> None:
        """Remember that all tasks up to now have succeeded."""
        self.sound = self.futures, self.carried, {**self.kinds}
        self.unsure.clear()

    def is_distributed(self, node: Node) -> bool:
        """Evaluate a value, and return whether it has rows, which stay at the partitions."""
        if node.call is not None and node not in self.kinds:
            self.pending.append(node.call)  # it is not pending after a pass that failed
        self.evaluate()
        return node in self.kinds

    def _run_pass(self, pending: list[Call]) -> list[Call]:
        chosen: list[tuple[Call, Typing]] = []
        postponed: list[Call] = []
        for call in pending:
            waiting = [node for node in call.inputs if node.is_pending and node not in self.kinds]
            if waiting:
                postponed.append(call)
            elif not any(node in self.kinds for node in call.inputs):
                run_whole([call], self.recorder)
                give_copies([call])
            else:
                typing = self._typing(call)
                chosen.append((call, typing))
                for number, node in call.live_outputs():
                    if not isinstance(typing.outputs[number], COMBINED):
                        self.kinds[node] = typing.outputs[number]
        self.unsure += [call for call, _ in chosen]
        for call, _ in chosen:
            call.has_run = True
        if chosen:
            is_sound = self._submit(chosen, postponed)
            give_copies([call for call, _ in chosen])
            self._forget()
            if is_sound:
                self._keep()
        return postponed

    def _typing(self, call: Call) -> Typing:
        known = tuple(self.kinds.get(node) for node in call.inputs)
        for typing in call.annotation.typings(call, known):
            if typing.agrees_with(known) and not call.writes:
                return typing
        raise WholeArrayError(
            f"{call.place} needs the whole array over {self.split!r}, about "
            f"{self.split.nbytes} bytes; call it on each block in a task, or pass arrays or frames "
            "instead of the Split"
        )

    def _submit(
        self,
        chosen: Sequence[tuple[Call, Typing]],
        postponed: Sequence[Call],
        returned: Sequence[Node] = (),
    ) -> bool:
        """Send calls to the partitions; return whether all results have been awaited."""
        numbers: dict[Node, int] = {}

        def number_of(node: Node) -> Ref:
            return Ref(numbers.setdefault(node, len(numbers)))

        for node in (*self.members, *self.carried):
            number_of(node)
        wanted = {node for call in postponed for node in call.inputs}
        kept = [each for each in self.carried if each.is_held or each in wanted or not chosen]
        calls, rows, reductions = [], [*kept, *returned], []
        for call, typing in chosen:
            calls.append(sent(call, typing, number_of, numbers))
            for at, node in call.live_outputs():
                kind = typing.outputs[at]
                if isinstance(kind, Broadcast | Groups):
                    kind = Reduction(None, functools.partial(merge_pair, kind), commutative=True)
                if isinstance(kind, Reduction):
                    reductions.append((node, WithErrstate.of(kind, {**call.errstate})))
                    if kind.takes_start:
                        self.split.resolve_item_indexes()
                elif (node.is_held or node in wanted) and node not in kept:
                    rows.append(node)
        spec = Pass(
            tuple(numbers[node] for node in self.members),
            tuple(layout_of(getattr(node.meta, "empty", node.meta)) for node in self.members),
            tuple(numbers[node] for node in self.carried),
            {
                number: node.data
                for node, number in numbers.items()
                if node not in self.kinds and not node.is_pending
            },
            tuple(calls),
            tuple(numbers[node] for node in rows),
            tuple((numbers[node], kind) for node, kind in reductions),
        )
        before: list[tuple[Any, ...]] = [(future,) for future in self.futures] or [()] * len(
            self.partitions
        )
        self.futures = [
            partition.submit(run_pass, spec, CURRENT.get(), *carried)
            for partition, carried in zip(self.partitions, before, strict=True)
        ]
        self.carried = tuple(rows)
        if reductions:
            self._merge(reductions, len(rows))
        elif not rows:
            gather(self.futures)  # raises what the tasks have raised
        return bool(reductions or not rows)

    def _merge(self, reductions: Sequence[tuple[Node, Reduction]], first: int) -> None:
        """Combine the partial results of all partitions."""
        kinds = [kind for _, kind in reductions]
        parts = [
            partition.submit(partials, future, first)
            for partition, future in zip(self.partitions, self.futures, strict=True)
        ]
        (merged,) = gather([reduce(functools.partial(combine, kinds), parts)])
        for (node, kind), ((_, _, value),) in zip(reductions, merged, strict=True):
            if not isinstance(value, Nothing):
                node.finish(value if kind.finish is None else kind.finish(value))
            elif node.call is not None:
                finish_without_rows(node.call, value, self.kinds, self.recorder)

    def _output(self, node: Node) -> int:
        """Return the number of a value among the results of the passes."""
        if node not in self.carried:  # an argument, whose blocks are at the partitions
            self._submit((), (), (node,))
        return self.carried.index(node)

    def collection_of(self, node: Node) -> Any:
        """Return the collection of a result with rows, blocked like the Split."""
        self._check_rows(node)
        if node.meta is None:
            self.learn(node)
        output = self._output(node)
        meta = node.meta
        if meta is not None and meta.exact:
            example = meta.empty
        else:
            first = self.partitions[0].submit(example_of_result, self.futures[0], output)
            (example,) = gather([first])
            if isinstance(example, str):
                raise AnnotationError(
                    f"{cast(Call, node.call).name} returned {example} for a block, and results "
                    "with rows over a Split are arrays or frames; let it return one of these, or "
                    "correct its annotation"
                )
        return self.split.assemble(
            zip(self.partitions, self.futures, strict=True),
            meta=example,
            output=output,
            same_rows=self.kinds[node] == ROWS,
        )


def _free(reference: weakref.ref[SplitGraph]) -> None:
    """Free what a graph has at the partitions, if it exists: errors that it has may refer to it."""
    if (graph := reference()) is not None:
        graph.free()


def _rows_of_split() -> None:
    """Stand for the blocks of a Split, as the call that makes their rows."""
