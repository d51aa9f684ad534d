"""Send passes over a Split to its partitions, and keep track of what they have made there."""

from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from spliter._errors import AnnotationError, WholeArrayError
from spliter._results import gather, reduce
from spliter._split import Split
from spliter.pipeline._annotations.elementwise import ELEMENTWISE
from spliter.pipeline._calls.calls import Call, Node, Typing
from spliter.pipeline._calls.metas import ArrayMeta, FrameMeta, Meta
from spliter.pipeline._calls.split_types import (
    Axis,
    Broadcast,
    Groups,
    Nothing,
    Reduction,
    SplitType,
    Unknown,
)
from spliter.pipeline._functions.first_rows import MAX_ROWS
from spliter.pipeline._options import CURRENT
from spliter.pipeline._over_split.tasks import (
    COMBINED,
    FAILED,
    Pass,
    Ref,
    combine,
    ended,
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
from spliter.pipeline._running.recorded_warnings import WarningRecorder, WithErrstate
from spliter.pipeline._running.without_rows import finish_without_rows
from spliter.pipeline._values.lazy import give_copies, is_array, is_frame

ROWS = Unknown(-1)
"""Type of values with a row for each row of the Split, whose lengths each partition knows."""


class Passes:
    """Values with rows that are at the partitions of a Split, and the tasks that make more.

    Parameters
    ----------
    split : Split
    metas : sequence of ArrayMeta or FrameMeta
        Of the rows of each of its collections.
    """

    def __init__(self, split: Split, metas: Sequence[Meta]) -> None:
        self.split = split
        self.partitions = list(split)
        self.partitions[0].indexes.check_whole_rows("the argument of a pipeline")
        self.members = [Node(None, _made_already(), each) for each in metas]
        self.kinds: dict[Node, SplitType] = dict.fromkeys(self.members, ROWS)
        """Types of the values with rows, stored or to be stored."""
        self.futures: list[Any] = []
        """Results of the last pass, one per partition."""
        self.carried: tuple[Node, ...] = ()
        """The values in them."""
        self.rows: tuple[Any, ...] | None = None
        """The first rows of each member, once they are known."""
        self.samples: weakref.WeakKeyDictionary[Node, Any] = weakref.WeakKeyDictionary()
        """A row of each of some other values."""
        self.unsure: list[Call] = []
        """Calls of passes that are not awaited."""
        self.sound: tuple[list[Any], tuple[Node, ...], dict[Node, SplitType]]
        """What tasks have made that have succeeded."""
        self.keep()

    # --- passes ---

    def place(self, call: Call) -> Typing:
        """Return how the next pass cuts a call; its results with rows stay at the partitions."""
        typing = self._typing(call)
        for number, node in call.live_outputs():
            if not isinstance(typing.outputs[number], COMBINED):
                self.kinds[node] = typing.outputs[number]
        return typing

    def run(
        self,
        chosen: Sequence[tuple[Call, Typing]],
        postponed: Sequence[Call],
        recorder: WarningRecorder,
    ) -> None:
        """Send the calls of a pass to the partitions.

        Parameters
        ----------
        chosen : sequence of (Call, Typing)
        postponed : sequence of Call
            Those of later passes.
        recorder : WarningRecorder
            For calls that have to run at the client, as there are no rows.
        """
        self.unsure += [call for call, _ in chosen]
        for call, _ in chosen:
            call.has_run = True
        reductions = self._send(chosen, postponed)
        if reductions:
            self._merge(reductions, recorder)
        elif not self.carried:
            self._gather(self.futures)  # raises what the tasks have raised
        give_copies([call for call, _ in chosen])
        self.forget()
        if reductions or not self.carried:
            self.keep()

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

    def _send(
        self,
        chosen: Sequence[tuple[Call, Typing]],
        postponed: Sequence[Call],
        returned: Sequence[Node] = (),
    ) -> list[tuple[Node, Reduction]]:
        """Submit a task per partition; return the values of which tasks make parts."""
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
                if isinstance(kind, Reduction) and node.is_pending:
                    reductions.append((node, WithErrstate.of(kind, {**call.errstate})))
                    if kind.takes_start:
                        self.split.resolve_item_indexes()
                elif node in self.kinds and node not in kept and (node.is_held or node in wanted):
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
        return reductions

    def _merge(
        self, reductions: Sequence[tuple[Node, Reduction]], recorder: WarningRecorder
    ) -> None:
        """Combine the partial results of all partitions."""
        kinds = [kind for _, kind in reductions]
        parts = [
            partition.submit(partials, future, len(self.carried))
            for partition, future in zip(self.partitions, self.futures, strict=True)
        ]
        (merged,) = self._gather([reduce(functools.partial(combine, kinds), parts)])
        for (node, kind), ((_, _, value),) in zip(reductions, merged, strict=True):
            if not isinstance(value, Nothing):
                node.finish(value if kind.finish is None else kind.finish(value))
            elif node.call is not None:
                finish_without_rows(node.call, value, self.kinds, recorder)

    # --- what has been made ---

    def settle(self) -> None:
        """Wait for the tasks, and raise what they have raised."""
        self._gather(self._ends())
        self.keep()

    def _ends(self) -> list[Any]:
        """Return a future for each task, whose result is nothing."""
        pairs = zip(self.partitions, self.futures, strict=False)  # there may be none yet
        return [partition.submit(ended, future) for partition, future in pairs]

    def _gather(self, futures: Sequence[Any]) -> list[Any]:
        """Return the results of tasks that follow from those of the pass.

        If one has failed, wait for all, as an earlier call may have failed in another one.
        """
        errors: list[Exception] = []
        try:
            return gather(futures)
        except Exception as error:
            number = getattr(error, FAILED, -1)  # else it is none of a call, such as a time-out
            if not any(call.may_fail and call.number < number for call in self.unsure):
                raise
            errors.append(error)
        for end in self._ends():
            try:
                gather([end])
            except Exception as error:  # noqa: BLE001 -- the first one is raised
                errors.append(error)
        try:
            raise min(errors, key=lambda error: getattr(error, FAILED, math.inf))
        finally:
            errors.clear()  # they refer to this frame

    def forget(self) -> None:
        """Forget values that are not stored: nobody needs them now."""
        stored = {node.call for node in self.carried}
        for node in self.kinds.keys() - {*self.members, *self.carried}:
            if node.call is not None and node.call not in stored:
                node.call.has_run = False
            del self.kinds[node]

    def keep(self) -> None:
        """Remember that all tasks up to now have succeeded."""
        self.sound = self.futures, self.carried, {**self.kinds}
        self.unsure.clear()

    def undo(self) -> list[Call]:
        """Go back to the last pass that has succeeded; return the calls of later ones."""
        self.futures, self.carried, kinds = self.sound
        self.kinds = {**kinds}
        undone, self.unsure = self.unsure, []
        for call in undone:
            call.has_run = False
        return undone

    def free(self, *, for_good: bool) -> None:
        """Free what has been made; if for good, the blocks of the Split, too."""
        self.futures, self.carried = [], ()
        self.forget()
        self.keep()
        if for_good:
            self.partitions = []
            vars(self).pop("split", None)  # values that the program has kept refer to this

    def count(self, node: Node) -> int:
        """Return the number of rows of a value, counted where they are."""
        if self.kinds[node] == ROWS:
            self.split.resolve_item_indexes()
            return sum(cast(int, partition.shape[0]) for partition in self.partitions)
        output = self._output(node)
        pairs = zip(self.partitions, self.futures, strict=True)
        counts = [each.submit(rows_of_result, made, output) for each, made in pairs]
        return int(sum(self._gather(counts)))

    def first_rows(self, node: Node) -> Any:
        """Return what is known of the first rows of a value; of a collection, ask for them."""
        if node not in self.members:
            return self.samples.get(node)
        partitions = iter(self.partitions)
        while self.rows is None and (partition := next(partitions, None)) is not None:
            (self.rows,) = gather([partition.submit(first_rows, MAX_ROWS)])
        return self.rows and self.rows[self.members.index(node)]

    def first_row(self, node: Node) -> Any:
        """Return a row of an array or a frame; none of it if it has none."""
        output = self._output(node)
        pairs = zip(self.partitions, self.futures, strict=True)
        found = self._gather([each.submit(first_row, made, output) for each, made in pairs])
        row = next((each for each in found if np.size(each)), found[0])
        if np.size(row):
            self.samples[node] = row
        return row

    def learn(self, node: Node) -> None:
        """Set the meta of a value of which nothing is known, if it has rows."""
        row = self.first_row(node)
        if row is not None:  # of no rows, Python may have made another dtype
            output = self._output(node)
            self.futures = [
                partition.submit(with_no_rows, future, output, row[:0])
                for partition, future in zip(self.partitions, self.futures, strict=True)
            ]
        self.keep()
        if is_array(row):
            node.meta = ArrayMeta((None, *row.shape[1:]), row.dtype, exact=False)
        elif is_frame(row):
            node.meta = FrameMeta(row.iloc[:0].copy(), None, exact=False)

    def _output(self, node: Node) -> int:
        """Return the number of a value among the results of the passes."""
        if node not in self.carried:  # an argument, whose blocks are at the partitions
            self._send((), (), (node,))
        return self.carried.index(node)

    def has_columns(self, node: Node) -> bool:
        """Return whether the blocks of a value stand side by side."""
        kind = self.kinds[node]
        return isinstance(kind, Axis) and kind.axis != 0

    def check_rows(self, node: Node) -> None:
        """Raise if the blocks of a value stand side by side."""
        if self.has_columns(node):
            raise WholeArrayError(
                f"{cast(Call, node.call).place} gives columns of {self.split!r} by its annotation "
                f"{self.kinds[node]!r}, and collections have rows; transpose them in the function, "
                "or pass arrays or frames instead of the Split"
            )

    def collection_of(self, node: Node) -> Any:
        """Return the collection of a result with rows, blocked like the Split."""
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
            rows="same" if self.kinds[node] == ROWS else "unknown",
        )


def _made_already() -> Call:
    """Return the call that stands for what has made the rows of a Split."""
    call = Call(_rows_of_split, (), {}, ELEMENTWISE)
    call.has_run = True
    return call


def _rows_of_split() -> None:
    """Stand for the function that has made the rows of a Split."""
