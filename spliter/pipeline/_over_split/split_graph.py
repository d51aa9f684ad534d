"""Pending calls on the rows of a Split: which pass runs them, and what becomes of their results."""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, cast

from spliter._errors import InvalidArgumentError, WholeArrayError
from spliter._partition import Partition
from spliter._running.results import gather, reduce
from spliter._split import Split
from spliter.pipeline._annotations.rows import token_of
from spliter.pipeline._calls.calls import NUMBERS, Call, Node, Typing
from spliter.pipeline._calls.graph import Graph, with_makers
from spliter.pipeline._calls.sites import Site
from spliter.pipeline._calls.split_types import Axis, Broadcast, SplitType, Unknown
from spliter.pipeline._options import CURRENT
from spliter.pipeline._over_split.blocks import meta_of_rows
from spliter.pipeline._over_split.partials import Merger, combine
from spliter.pipeline._over_split.programs import Kept, Program, SentCall
from spliter.pipeline._over_split.tasks import example_of_result, partials, rows_of_result, run_pass
from spliter.pipeline._running.evaluate import run_calls

ROWS: Final = Unknown(-1)
"""Type of values with a row for each row of the Split, whose positions each partition knows."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Where the rows of a value are."""

    kind: SplitType
    futures: list[Any]
    """Of the pass that has made them, one per partition; empty for a collection of the Split."""
    output: int
    token: int
    """Identifies the rows that it chooses, if it is a mask."""


class SplitGraph(Graph):
    """Pending calls on the rows of a Split."""

    is_over_split: ClassVar[bool] = True

    def __init__(self, split: Split, examples: tuple[Any, ...]) -> None:
        super().__init__()
        self.split: Split | None = split
        self.nbytes = split.nbytes
        self.partitions: list[Partition] = list(split)
        self.partitions[0].indexes.check_whole_rows("the argument of a pipeline")
        self.examples = examples
        self.members = [Node(None, None, meta_of_rows(each)) for each in examples]
        for at, node in enumerate(self.members):
            node.rows = Rows(ROWS, [], at, -2 - next(NUMBERS))

    def run(self, calls: list[Call], kept: set[Node]) -> None:
        """Run calls in as many passes as they need."""
        while calls:
            before = calls
            chosen, calls = self._next_pass(calls)
            if chosen:
                self._run_pass(chosen, {*kept, *[node for call in calls for node in call.inputs]})
            assert len(calls) < len(before), "a call needs a value that no call makes"

    def _next_pass(self, calls: Sequence[Call]) -> tuple[list[tuple[Call, Typing]], list[Call]]:
        """Return the calls of the next pass, and those after it; run those on no rows."""
        chosen: list[tuple[Call, Typing]] = []
        kinds: dict[Node, SplitType] = {}
        later: list[Call] = []
        for call in calls:
            if any(node.is_pending and node not in kinds for node in call.inputs):
                later.append(call)
            elif all(node.is_here for node in call.inputs):
                run_calls([call], [node for _, node in call.live_outputs()], CURRENT.get())
            else:
                chosen.append((call, self._place(call, kinds)))
        return chosen, later

    def _place(self, call: Call, kinds: dict[Node, SplitType]) -> Typing:
        """Return how rows are cut for a call; add the types of its results with rows."""
        known = tuple([node.rows.kind if node.rows else kinds.get(node) for node in call.inputs])
        for typing in call.annotation.typings(call, known):
            # Blocks of a result do not stand side by side.
            is_along_rows = any(isinstance(o, Axis) and o.axis for o in typing.outputs)
            if typing.agrees_with(known) and not is_along_rows:
                for number, node in call.live_outputs():
                    if not _is_combined(typing.outputs[number]):
                        kinds[node] = typing.outputs[number]
                return typing
        raise WholeArrayError(
            f"{call.place} needs all rows over {self.split!r}, about {self.nbytes} bytes, or has "
            "operands of other rows; split them together, split(x, y), choose rows by the same "
            "mask, call it on each block in a task, or pass arrays or frames instead of the Split"
        )

    def _run_pass(self, chosen: Sequence[tuple[Call, Typing]], wanted: Collection[Node]) -> None:
        """Send the calls of a pass to the partitions; keep where their results are."""
        numbers: dict[Node, int] = {}

        def number_of(node: Node) -> int:
            return numbers.setdefault(node, len(numbers))

        made: dict[Node, tuple[Call, SplitType]] = {}
        cut = {node for call, _ in chosen for node in call.inputs if not node.is_here}
        calls = []
        for call, typing in chosen:
            calls.append(SentCall.of(call, typing, cut, number_of))
            made.update({node: (call, typing.outputs[at]) for at, node in call.live_outputs()})
        reductions = {
            node: Merger.of(kind, {**call.errstate})
            for node, (call, kind) in made.items()
            if _is_combined(kind)
        }
        rows = [node for node in made if node in wanted and node not in reductions]
        if any(call.takes_start for call in calls):
            self._open_split().resolve_item_indexes()
        futures = self._submit(
            numbers,
            calls,
            [Kept(numbers[n], made[n][0].place, made[n][1] == ROWS) for n in rows],
            [(numbers[node], merger) for node, merger in reductions.items()],
        )
        for output, node in enumerate(rows):
            call, kind = made[node]
            node.rows, node.call = Rows(kind, futures, output, token_of(node, call)), None
        if reductions:
            self._merge(reductions, futures, len(rows))
        elif not rows:  # functions that return nothing
            gather(futures)

    def _submit(
        self,
        numbers: dict[Node, int],
        calls: Sequence[SentCall],
        rows: Sequence[Kept],
        reductions: Sequence[tuple[int, Merger]],
    ) -> list[Any]:
        """Submit one task per partition, with the same program."""
        self._open_split()
        carried = [node for node in numbers if node.rows and node.rows.futures]
        passes = {id(node.rows.futures): node.rows.futures for node in carried}
        which = {key: at for at, key in enumerate(passes)}
        for node in self.members:
            numbers.setdefault(node, len(numbers))
        program = Program(
            self.examples,
            tuple([numbers[node] for node in self.members]),
            tuple([(which[id(n.rows.futures)], n.rows.output, numbers[n]) for n in carried]),
            {number: node.data for node, number in numbers.items() if node.is_here},
            tuple(calls),
            tuple(rows),
            tuple(reductions),
        )
        before = zip(*passes.values(), strict=True) if passes else [()] * len(self.partitions)
        return [
            partition.submit(run_pass, program, CURRENT.get(), *each)
            for partition, each in zip(self.partitions, before, strict=True)
        ]

    def _merge(self, reductions: dict[Node, Merger], futures: Sequence[Any], rows: int) -> None:
        """Combine the partial results of all partitions."""
        if rows:  # which stay where they are
            pairs = zip(self.partitions, futures, strict=True)
            futures = [partition.submit(partials, future, rows) for partition, future in pairs]
        mergers = [*reductions.values()]
        (merged,) = gather([reduce(functools.partial(combine, mergers), futures)])
        for (node, merger), runs in zip(reductions.items(), merged, strict=True):
            node.finish(merger.finished(runs))

    def value(self, node: Node) -> Any:
        """Return a value at the client; refuse rows, which it does not fetch."""
        if node.is_here:
            return node.data
        raise WholeArrayError(
            f"{Site.of_caller()}{f', in {self.by},' if self.by else ''} needs all rows of a value "
            f"over {self.split!r} in the client's memory, about {self.nbytes} bytes; reduce it "
            f"{'without NaN, as x[~np.isnan(x)].mean()' if self.by[:3] == 'nan' else 'first'}, "
            "return it and use the collection, annotate a function of rows by splittable, or pass "
            "arrays or frames instead of the Split"
        )

    def length(self, node: Node) -> int | None:
        """Return the number of rows, counted where they are; ``None`` if it has none."""
        kinds: dict[Node, SplitType] = {}
        for call in with_makers([] if node.call is None else [node.call]):
            if any(each in kinds or each.rows for each in call.inputs):
                self._place(call, kinds)
        kind = node.rows.kind if node.rows else kinds.get(node)
        if kind == ROWS:
            self._open_split().resolve_item_indexes()
            return sum(cast(int, partition.shape[0]) for partition in self.partitions)
        if kind is None:
            return None
        self.evaluate()
        pairs = zip(self.partitions, node.rows.futures, strict=True)
        return int(sum(gather([p.submit(rows_of_result, f, node.rows.output) for p, f in pairs])))

    def learn(self, node: Node) -> bool:
        """Evaluate a value of which nothing is known; return whether it is an array elsewhere."""
        self.evaluate()
        if node.rows and node.rows.futures and node.meta is None:
            node.meta = meta_of_rows(self._example(node.rows.futures, node.rows.output))
        return node.rows is not None and node.meta is not None

    def _example(self, futures: Sequence[Any], output: int) -> Any:
        """Return no rows of a result of a pass: of the first partition that has made some."""
        example = None
        for partition, future in zip(self.partitions, futures, strict=True):
            ((example, has_rows),) = gather([partition.submit(example_of_result, future, output)])
            if has_rows:
                break
        return example

    def collection_of(self, node: Node) -> Any:
        """Return the collection of a value with rows, blocked like the Split."""
        split, rows = self._open_split(), node.rows
        futures, output = rows.futures, rows.output
        if not futures:  # a collection of the Split, whose blocks tasks check
            number = {node: 0}
            futures, output = self._submit(number, [], [Kept(0, "the Split", True)], []), 0
        example = self._example(futures, output) if node.meta is None else node.meta.empty
        return split.assemble(
            zip(self.partitions, futures, strict=True),
            meta=example,
            output=output,
            rows="same" if rows.kind == ROWS else "unknown",
        )

    def _open_split(self) -> Split:
        if self.split is None:
            raise InvalidArgumentError(
                f"{Site.of_caller()} uses rows of a pipeline over a Split that has returned; "
                "return them, and pass the collection to another pipeline"
            )
        return self.split

    def close(self) -> None:
        """Free the blocks of the Split: values that the program has kept refer to this."""
        self.split, self.partitions = None, []


def _is_combined(kind: SplitType) -> bool:
    """Return whether the client combines a result; others stay at the partitions."""
    return kind.combines or isinstance(kind, Broadcast)
