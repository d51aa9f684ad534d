"""Run a pass of a pipeline on the blocks of a partition, in a task."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from spliter._errors import AnnotationError
from spliter._partition import Partition
from spliter.backend.contents import count_rows, has_rows
from spliter.pipeline._calls.calls import Call, Node, source
from spliter.pipeline._calls.metas import is_frame
from spliter.pipeline._options import CURRENT, Options
from spliter.pipeline._over_split.blocks import checked, example_of, members_of
from spliter.pipeline._over_split.partials import Run
from spliter.pipeline._over_split.programs import Kept, Program, Step
from spliter.pipeline._running.evaluate import run_calls


def run_pass(partition: Partition, program: Program, options: Options, *passes: Any) -> Any:
    """Run a pass on the blocks of a partition; the body of a task."""
    rows: list[list[Any]] = [[] for _ in program.rows]
    runs: list[list[Run]] = [[] for _ in program.reductions]
    starts = partition.indexes.item_starts
    if options.threads == "auto":  # the engine runs one task per core
        options = replace(options, threads=1)
    token = CURRENT.set(options)
    try:
        for at, (index, block) in enumerate(partition.items()):
            values = dict(
                zip(program.members, checked(block, program.examples, index), strict=True)
            )
            values.update({number: passes[p][output][at] for p, output, number in program.carried})
            start = 0 if starts is None else int(starts[at])
            with _noted(f" of block {index}"):
                found = _run_block(program, values, start)
                for kept, blocks in zip(program.rows, rows, strict=True):
                    blocks.append(_checked(found[kept.number], kept, count_rows(members_of(block))))
            for (number, _), parts in zip(program.reductions, runs, strict=True):
                parts.append(Run(index[0], index[0], found[number]))
    finally:
        CURRENT.reset(token)
    mergers = [merger for _, merger in program.reductions]
    return (*rows, *[m.combine_runs(parts) for m, parts in zip(mergers, runs, strict=True)])


@contextmanager
def _noted(where: str) -> Iterator[None]:
    """Add to the note of an error, which names the call and its items."""
    try:
        yield
    except Exception as error:
        if notes := getattr(error, "__notes__", None):
            notes[-1] += where
        raise


def _run_block(program: Program, values: dict[int, Any], start: int) -> dict[int, Any]:
    """Run the calls of a pass on the block at a row; return what is wanted, by its number."""
    nodes: dict[int, Node] = {at: source(each) for at, each in {**program.wholes, **values}.items()}
    calls: list[Call] = []
    for each in program.calls:
        fn = each.fn
        if each.takes_start:
            fn = Step(functools.partial(_at, start, fn), fn.__name__)
        calls.append(each.call(nodes, fn))
    wanted = {*[kept.number for kept in program.rows], *[at for at, _ in program.reductions]}
    run_calls(calls, {nodes[at] for at in wanted}, CURRENT.get())
    return {at: nodes[at].data for at in wanted}


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
