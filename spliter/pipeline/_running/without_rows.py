"""Make reductions of a collection without rows, of which no block has a part, at the client."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from spliter.pipeline._calls.calls import Call, Node
from spliter.pipeline._calls.split_types import Nothing, SplitType
from spliter.pipeline._running.recorded_warnings import WarningRecorder


def finish_without_rows(
    call: Call, nothing: Nothing, kinds: Mapping[Node, SplitType], recorder: WarningRecorder
) -> None:
    """Run a call on values without rows, and set its results that have none.

    Parameters
    ----------
    call : Call
    nothing : Nothing
        With arguments that a block has made.
    kinds : mapping of Node to SplitType
        Values with rows, which are at the partitions.
    recorder : WarningRecorder
    """
    given = {call.inputs[call.keys.index(key)]: value for key, value in nothing.given.items()}

    def value_of(node: Node) -> Any:
        if node in given or node not in kinds:
            return given.get(node, node.data)
        if node.meta is not None:
            return node.meta.empty
        maker = cast(Call, node.call)  # of which nothing is known before it runs
        results = _results_of(maker, value_of, recorder)
        return next(results[at] for at, each in maker.live_outputs() if each is node)

    results = _results_of(call, value_of, recorder)
    for at, node in call.live_outputs():
        if node not in kinds:
            node.finish(results[at])


def _results_of(
    call: Call, value_of: Callable[[Node], Any], recorder: WarningRecorder
) -> Sequence[Any]:
    args, kwargs = call.filled(value_of)
    with recorder.errstate(call.errstate, lambda: call):
        result = call.fn(*args, **kwargs)
    return result if len(call.outputs) > 1 else (result,)
