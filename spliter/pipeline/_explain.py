"""``explain``: show the stages of a pipeline, and why one ends."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from spliter._errors import InvalidArgumentError
from spliter._split import Split
from spliter.pipeline._capture.annotated import captured
from spliter.pipeline._planning.stages import Stage
from spliter.pipeline._running.evaluate import TRACE, LocalGraph
from spliter.pipeline._running.runner import Batches


def explain(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> str:
    """Run a pipeline; return the stages in which its calls ran, with the reason of each break.

    `fn` is a function made by :func:`pipeline`, or its body; what is marked ``mut`` is changed.

    Raises
    ------
    InvalidArgumentError
        For a Split: pass rows like those of a partition instead.

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
      because subtract needs the whole result of a call before
        subtract ...: Rows(), broadcast -> Rows()
    """
    if any(isinstance(each, Split) for each in (*args, *kwargs.values())):
        raise InvalidArgumentError(
            "explain shows how a pipeline cuts arrays; pass rows like those of a partition instead"
        )
    trace: list[Any] = []
    graph = LocalGraph()
    token = TRACE.set(trace)
    try:
        result = captured(getattr(fn, "__wrapped__", fn), graph, args, kwargs)
        graph.root().evaluate()
        del result  # held until then, as results are
    finally:
        TRACE.reset(token)
    numbers = itertools.count(1)
    return "\n".join([t if isinstance(t, str) else _stage(next(numbers), *t) for t in trace])


def _stage(number: int, stage: Stage, batches: Batches | None) -> str:
    lines = [f"stage {number}: whole values"]
    if batches is not None:
        threads = "1 thread" if batches.threads == 1 else f"{batches.threads} threads"
        lines = [
            f"stage {number}: {stage.length} items in batches of {batches.batch}, {threads}, "
            f"{batches.driver} driver"
        ]
    if stage.reason:
        lines.append(f"  because {stage.reason}")
    for call, typing in stage.calls:
        inputs = ", ".join(map(repr, typing.inputs))
        outputs = ", ".join(map(repr, typing.outputs)) or "nothing"
        lines.append(f"    {call.place}: {inputs} -> {outputs}")
    return "\n".join(lines)
