"""Decide what stages store: results that the program holds, and those that later stages need.

Some results take less time to make of whole values than to collect from pieces: a frame with one
more column shares the others, and the rows of a filter are copied once. Their calls run after the
stage, and in it for others of its calls that read them::

    d["net"] = d["sum"] - d["fee"]     stage 1: subtract, which is stored; setitem for the filter
    big = d[d["net"] > 100]            whole:   setitem, getitem
"""

from __future__ import annotations

from collections.abc import Sequence

from spliter.pipeline._calls.calls import Call, Node
from spliter.pipeline._calls.split_types import Unknown
from spliter.pipeline._planning.stages import Stage, whole_typing


def with_stored(stages: Sequence[Stage], postponed: Sequence[Call]) -> list[Stage]:
    """Return stages that know what they store, with more for calls that run on whole values.

    Parameters
    ----------
    stages : sequence of Stage
    postponed : sequence of Call
        Calls that are planned later.
    """
    used_later = {node for call in postponed for node in call.inputs}
    result: list[Stage] = []
    for stage in reversed(stages):
        whole = Stage(None, "these results take longer to collect from pieces")
        if not stage.is_whole:
            _move_light(stage, whole, used_later)
        for each in (whole, stage):
            if each.calls:
                _mark_stored(each, used_later)
                result.insert(0, each)
    return result


def _mark_stored(stage: Stage, used_later: set[Node]) -> None:
    """Note what a stage must store for others, and what no stage after it reads."""
    made = {node for call in stage.remade for _, node in call.live_outputs()}
    stage.stored = [
        node for node in stage.made if node not in made and (node.is_held or node in used_later)
    ]
    read = {node for call, _ in stage.calls for node in call.inputs if node.is_pending}
    stage.last_read = read - used_later
    used_later |= read


def _move_light(stage: Stage, whole: Stage, used_later: set[Node]) -> None:
    """Let calls run on whole values whose results are stored, and take longer to collect."""
    light = _light(stage)
    if not light:
        return
    needed = used_later.copy()
    read: set[Node] = set()
    """Values that calls of the stage read which stay in it."""
    kept, moved = [], []
    for call, typing in reversed(stage.calls):
        nodes = [node for _, node in call.live_outputs()]
        is_stored = any(node.is_held or node in needed for node in nodes)
        is_read = not read.isdisjoint(nodes)
        # The rows of a filter would be copied twice, the columns of a frame are not.
        if is_stored and call in light and not (is_read and isinstance(typing.outputs[0], Unknown)):
            moved.append(call)
            needed |= {*call.inputs}
            if not is_read:
                continue
            stage.remade.add(call)
        kept.append((call, typing))
        read |= {*call.inputs}
    for call in reversed(moved):
        whole.add(call, whole_typing(call))
    if moved:
        kept.reverse()
        stage.keep(kept)


def _light(stage: Stage) -> set[Call]:
    """Return the calls that may run on whole values, as their frames are there or light, too."""
    light: set[Call] = set()
    for call, typing in stage.calls if not stage.writes else ():
        frame = call.inputs[0] if typing.is_light else None
        if frame and (frame not in stage.made or frame.call in light):
            light.add(call)
    return light
