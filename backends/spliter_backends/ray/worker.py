"""Remote functions that run on the nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import ray
from ray import ObjectRef

from spliter import Partition
from spliter_backends._shared.error_codec import result_not_pickled
from spliter_backends.ray.cluster import fetched
from spliter_backends.ray.errors import travelling
from spliter_backends.ray.source import NodeSource, this_node


@dataclass(frozen=True)
class Slot:
    """Placeholder for a result in a task's arguments; `number` indexes the resolved results."""

    number: int


def filled(value: Any, results: Sequence[Any]) -> Any:
    """Replace slots in an argument by results, also inside lists, tuples and dictionaries.

    Examples
    --------
    >>> filled((1, [Slot(0), {"more": Slot(1)}]), ["a", "b"])
    (1, ['a', {'more': 'b'}])
    """
    if isinstance(value, Slot):
        return results[value.number]
    if type(value) in (list, tuple):
        return type(value)(filled(item, results) for item in value)
    if type(value) is dict:
        return {key: filled(item, results) for key, item in value.items()}
    return value


def run(
    fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any], sources: int, *results: Any
) -> Any:
    """Run a task.

    Parameters
    ----------
    fn : callable
        The user's function.
    args, kwargs
        Its arguments, with slots for results.
    sources : int
        Number of partitions among them.
    *results
        Values of the slots.

    Returns
    -------
    object or tuple
        The result. With partitions, the report and, for each partition, the concatenated blocks or
        None come before it. Ray keeps them at this node, owned by the main program.
    """
    try:
        given, named = filled(tuple(args), results), filled(dict(kwargs), results)
        if not sources:
            return _sendable(fn(*given, **named))
        arrived = [
            value.source
            for value in (*given, *named.values())
            if isinstance(value, Partition) and isinstance(value.source, NodeSource)
        ]
        node = this_node()
        for source in arrived:
            source.arrive(node)
        result = _sendable(fn(*given, **named))
        return [source.report() for source in arrived], *(one.made for one in arrived), result
    except (Exception, SystemExit) as error:  # noqa: BLE001 -- Ray cancels tasks with others
        failure = travelling(error)
    # Raised outside of the handler: Ray would pickle the context too, which may be unpicklable.
    raise failure


def _sendable(result: Any) -> Any:
    """Check that Ray can pickle a result, and return it.

    Ray pickles results after the task has returned, when its error looks like the task's own.
    Pickling does not copy arrays.
    """
    context = ray._private.worker.global_worker.get_serialization_context()
    try:
        context.serialize(result)
    except Exception as error:
        raise result_not_pickled(result, error) from error
    return result


def together(partition: Partition) -> Any:
    """Concatenate the blocks of a partition."""
    source: Any = partition.source
    try:
        source.arrive(this_node())
        return source.materialized()
    except Exception as error:  # noqa: BLE001 -- raised again below
        failure = travelling(error)
    raise failure


def copies(
    references: Sequence[ObjectRef], indexes: Sequence[tuple[int, ...]], timeout: float
) -> Iterator[Any]:
    """Yield blocks one by one, as objects of the node where this runs."""
    for reference, index in zip(references, indexes, strict=True):
        yield fetched([reference], [index], timeout)[0]


def pieces(result: Any, output: int | None) -> Any:
    """Return each of the blocks that a task has made as a separate result."""
    blocks = list(result if output is None else result[output])
    return blocks[0] if len(blocks) == 1 else blocks


RUN: Final = ray.remote(run)
TOGETHER: Final = ray.remote(together)
COPIES: Final = ray.remote(copies)
PIECES: Final = ray.remote(pieces)
