"""Run a pass of a pipeline on the blocks of a partition, in a task."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np

from spliter._errors import AnnotationError
from spliter._partition import Partition
from spliter._reading.rows import count_rows, has_rows
from spliter.pipeline._calls.calls import Call, Node, source
from spliter.pipeline._calls.metas import is_frame
from spliter.pipeline._options import CURRENT, Options
from spliter.pipeline._over_split.blocks import checked, example_of, members_of
from spliter.pipeline._over_split.partials import Run
from spliter.pipeline._over_split.programs import Kept, Program, named
from spliter.pipeline._running.evaluate import run_calls


def run_pass(partition: Partition, program: Program, options: Options, *passes: Any) -> Any:
    """Run a pass on the blocks of a partition; the body of a task."""
    rows: list[list[Any]] = [[] for _ in program.rows]
    runs: list[list[Run]] = [[] for _ in program.reductions]
    starts = partition.indexes.item_starts
    if options.threads == "auto":  # the engine runs one task per core
        options = replace(options, threads=1)
    token = CURRENT.set(options)
    calls: _Calls | None = None
    try:
        for at, (index, block) in enumerate(partition.items()):
            values = dict(
                zip(program.members, checked(block, program.examples, index), strict=True)
            )
            values.update({number: passes[p][output][at] for p, output, number in program.carried})
            start = 0 if starts is None else int(starts[at])
            try:
                if calls is None or not calls.fits(values):
                    calls = _Calls(program, values, start)
                found = calls.run(values)
                for kept, blocks in zip(program.rows, rows, strict=True):
                    blocks.append(_checked(found[kept.number], kept, count_rows(members_of(block))))
            except Exception as error:
                if notes := getattr(error, "__notes__", None):  # the call and its items
                    notes[-1] += f" of block {index}"
                raise
            for (number, _), parts in zip(program.reductions, runs, strict=True):
                parts.append(Run(index[0], index[0], found[number]))
    finally:
        CURRENT.reset(token)
    mergers = [merger for _, merger in program.reductions]
    return (*rows, *[m.combine_runs(parts) for m, parts in zip(mergers, runs, strict=True)])


class _Calls:
    """The calls of a pass, made for one block, and used again for others of the same shapes."""

    def __init__(self, program: Program, values: dict[int, Any], start: int) -> None:
        self.program = program
        self.kinds = list(map(_kind, values.values()))
        both = {**program.wholes, **values}
        self.nodes: dict[int, Node] = {at: source(each) for at, each in both.items()}
        self.calls: list[Call] = []
        for each in program.calls:
            fn = each.fn
            if each.takes_start:
                fn = named(functools.partial(_at, start, fn), fn.__name__)
            self.calls.append(each.call(self.nodes, fn))
        self.made = [(n, c, n.meta) for c in self.calls for _, n in c.live_outputs()]

    def fits(self, values: dict[int, Any]) -> bool:
        """Return whether the calls are the same for another block."""
        takes_start = any(each.takes_start for each in self.program.calls)
        return not takes_start and self.kinds == list(map(_kind, values.values()))

    def run(self, values: dict[int, Any]) -> dict[int, Any]:
        """Run the calls; return what is wanted, by its number."""
        for at, value in values.items():
            self.nodes[at].data = value
        for node, call, meta in self.made:
            node.data, node.call, node.meta = None, call, meta
        program = self.program
        wanted = {*[kept.number for kept in program.rows], *[at for at, _ in program.reductions]}
        run_calls(self.calls, {self.nodes[at] for at in wanted}, CURRENT.get())
        return {at: self.nodes[at].data for at in wanted}


def _kind(value: Any) -> tuple[Any, ...]:
    return type(value), getattr(value, "shape", None), getattr(value, "dtype", None)


def _at(first: int, partial: Any, *args: Any, start: int = 0, **kwargs: Any) -> Any:
    """Call the first step of a reduction on a batch of the block that begins at a row."""
    return partial(*args, start=first + start, **kwargs)


def _checked(value: Any, kept: Kept, rows: int) -> Any:
    """Return a result with rows, if it is an array or a frame, after counting them."""
    is_array = type(value) is np.ndarray and value.ndim > 0
    found = f"{count_rows(value)} items" if has_rows(value) else "one"
    if not (is_array or is_frame(value)) or (kept.has_all and count_rows(value) != rows):
        raise AnnotationError(
            f"{kept.name} returned a {type(value).__name__} of {found} for a block of {rows}; a "
            "result with rows over a Split is a plain array or a frame, with as many rows as the "
            "block unless it is annotated as unknown; correct the function or its annotation"
        )
    return value


def partials(partition: Partition, result: tuple[Any, ...], first: int) -> Any:
    """Return the partial results of a pass; runs where they are."""
    return result[first:]


def examples_of(partition: Partition) -> tuple[Any, ...]:
    """Return no rows of each member, of the first block; runs at its location."""
    return tuple(
        [example_of(each, "the first block") for each in members_of(next(iter(partition)))]
    )


def rows_of_result(partition: Partition, result: tuple[Any, ...], output: int) -> int:
    """Return the number of rows of a result of a pass; runs where it is."""
    return sum(map(count_rows, result[output]))


def example_of_result(
    partition: Partition, result: tuple[Any, ...], output: int
) -> tuple[Any, bool]:
    """Return no rows of a result of a pass, and whether it has some; runs where it is."""
    block = next(filter(count_rows, result[output]), result[output][0])
    return block[:0], count_rows(block) > 0
