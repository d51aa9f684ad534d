"""``explain``: show the stages of a pipeline, and why one ends."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from spliter._errors import InvalidArgumentError
from spliter._split import Split
from spliter.pipeline._calls.graph import Graph
from spliter.pipeline._decorators import captured
from spliter.pipeline._options import CURRENT, Options
from spliter.pipeline._planning.planner import needed, plan_for
from spliter.pipeline._planning.stages import Plan, Stage
from spliter.pipeline._running.compiled import driver_of, groups_of
from spliter.pipeline._running.evaluate import TRACE
from spliter.pipeline._running.program import compile_stage
from spliter.pipeline._values.containers import Containers, drop_lost, refuse


def explain(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> str:
    """Return the stages in which a pipeline runs its calls, with the reason of each break.

    Parameters
    ----------
    fn : callable
        A function made by :func:`pipeline`, or its body.
    *args, **kwargs
        Its arguments. Its body runs, and what it evaluates is evaluated; the calls that are pending
        when it returns do not run. Frames and objects are changed as by the body; pass a copy.

    Returns
    -------
    str
        For each stage the calls with their lines, the number of items, the batch and the driver.

    Raises
    ------
    InvalidArgumentError
        For a Split: stages are those of one partition. Pass the rows of one instead.

    Examples
    --------
    >>> import numpy as np
    >>> from spliter.pipeline import explain, options, pipeline
    >>> @pipeline
    ... def centred(x):
    ...     return x - x.mean(keepdims=True)
    >>> with options(batch=500, threads=2):
    ...     print(explain(centred, np.ones(1000)))
    stage 1: 1000 items in batches of 500, 2 threads, Python driver
        mean ...: Rows() -> Reduction
    stage 2: 1000 items in batches of 500, 2 threads, ... driver
      because subtract needs the whole result of mean ...
        subtract ...: Rows(), broadcast -> Rows()
    """
    if any(isinstance(each, Split) for each in (*args, *kwargs.values())):
        raise InvalidArgumentError(
            "explain shows how a pipeline cuts arrays and frames; pass rows like those of a "
            "partition in place of the Split, of which each pass makes a task per partition"
        )
    graph = Graph(returns=True)
    options = CURRENT.get()
    plans: list[list[str]] = []
    numbers = itertools.count(1)

    def described(plan: Plan, needed_at: str = "") -> Iterator[Stage]:
        lines: list[str] = []
        plans.append(lines)
        plans.append([f"  postponed: {call.place}" for call in plan.postponed])
        plans[-1] += [f"evaluated at {needed_at}"] if needed_at else []
        for stage in plan.stages:
            lines += _stage_lines(next(numbers), stage, options)
            yield stage

    token = TRACE.set(described)
    try:
        containers: Containers = {}
        result = captured(getattr(fn, "__wrapped__", fn), graph, args, kwargs, containers)
    finally:
        TRACE.reset(token)
    for _ in described(plan_for(options, needed(graph.root().pending))):
        pass
    drop_lost(containers, refuse)
    del result  # until here: what is returned is held
    return "\n".join(itertools.chain(*plans))


def _stage_lines(number: int, stage: Stage, options: Options) -> Iterator[str]:
    if stage.is_whole:
        yield f"stage {number}: whole values"
    else:
        program = compile_stage(stage)
        driver = driver_of(groups_of(program, compiles=not options.pedantic))
        batch = program.batch(options, driver)
        threads = min(program.threads(options), -(-program.length // batch))
        yield (
            f"stage {number}: {program.length} items in batches of {batch}, {threads} "
            f"{'thread' if threads == 1 else 'threads'}, {driver} driver"
        )
    if stage.reason:
        yield f"  because {stage.reason}"
    for call, typing in stage.calls:
        inputs = ", ".join(map(_described, typing.inputs))
        outputs = ", ".join(map(_described, typing.outputs)) or "nothing"
        yield f"    {call.place}: {inputs} -> {outputs}"


def _described(kind: Any) -> str:
    return "Reduction" if type(kind).__name__ == "Reduction" else repr(kind)
