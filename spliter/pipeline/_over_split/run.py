"""Arguments of a pipeline over a Split, and what it returns."""

from __future__ import annotations

from typing import Any

from spliter._errors import InvalidArgumentError
from spliter._running.results import gather
from spliter._split import Split
from spliter.pipeline._capture.annotated import captured
from spliter.pipeline._capture.capture import wrap
from spliter.pipeline._capture.containers import ARGUMENT, settled
from spliter.pipeline._capture.lazy import Lazy, compute
from spliter.pipeline._over_split.blocks import example_of, members_of
from spliter.pipeline._over_split.split_graph import SplitGraph
from spliter.pipeline._over_split.tasks import examples_of


def run_over_split(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a pipeline over a Split."""
    splits = {id(each): each for each in (*args, *kwargs.values()) if isinstance(each, Split)}
    if len(splits) > 1:
        raise InvalidArgumentError(
            f"a pipeline got {len(splits)} Splits, whose partitions need not match; split the "
            "collections together: split(x, y)"
        )
    (split,) = splits.values()
    graph = SplitGraph(split, _examples(split))
    lazies = [wrap(node, graph, ARGUMENT) for node in graph.members]
    if len(lazies) > 1 and any(isinstance(each, Split) for each in kwargs.values()):
        raise InvalidArgumentError(
            f"a Split of {len(lazies)} aligned collections is {len(lazies)} arguments; pass it "
            "by position"
        )
    spread = [one for each in args for one in (lazies if isinstance(each, Split) else [each])]
    named = {k: lazies[0] if isinstance(v, Split) else v for k, v in kwargs.items()}

    def value_of(lazy: Lazy) -> Any:
        graph.check()
        node = lazy._node
        if lazy._graph.root() is graph and node.rows is not None:
            return graph.collection_of(node)
        return compute(lazy)

    try:
        result = captured(fn, graph, tuple(spread), named)
        if graph.error is None:
            graph.evaluate()
        return settled(result, value_of)
    finally:
        graph.close()


def _examples(split: Split) -> tuple[Any, ...]:
    """Return no rows of each collection of a Split: by its metadata, or of the first block."""
    example = split._plan.blocks.example()
    if example is None:
        (found,) = gather([split[0].submit(examples_of)])
        return tuple(found)
    return tuple([example_of(each, "a block of this Split") for each in members_of(example)])
