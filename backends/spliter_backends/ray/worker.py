"""What runs on the nodes, as remote functions of Ray's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import ray
from ray import ObjectRef

from spliter import Partition
from spliter_backends._shared.sent_errors import result_not_pickled
from spliter_backends.ray.cluster import fetched
from spliter_backends.ray.errors import travelling
from spliter_backends.ray.source import NodeSource, this_node


@dataclass(frozen=True)
class Slot:
    """Stands for a result among the arguments of a task, which Ray brings.

    Parameters
    ----------
    number : int
        Which of the results.
    """

    number: int


def filled(value: Any, results: Sequence[Any]) -> Any:
    """Return an argument with results in the place of slots.

    Parameters
    ----------
    value : object
        Lists, tuples and dictionaries are looked into.
    results : sequence
        What Ray has brought.

    Returns
    -------
    object

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
        The function.
    args, kwargs
        Its arguments, with slots for results.
    sources : int
        How many partitions are among them.
    *results
        What goes into the slots.

    Returns
    -------
    object or tuple
        The result. With partitions the report comes before it, and for each of them the blocks
        as one, if they were put together: Ray keeps them at this node, in the name of the main
        program.
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
    except (Exception, SystemExit) as error:  # noqa: BLE001 -- others are Ray's, to cancel a task
        failure = travelling(error)
    # Out here it has no context: Ray would send that too, and it may be what cannot be sent.
    raise failure


def _sendable(result: Any) -> Any:
    """Return a result that Ray can pickle.

    Ray pickles results after the task has returned, where the error cannot be told from the
    task's own any more. Pickling takes no copy of arrays.
    """
    context = ray._private.worker.global_worker.get_serialization_context()
    try:
        context.serialize(result)
    except Exception as error:
        raise result_not_pickled(result, error) from error
    return result


def together(partition: Partition) -> Any:
    """Put the blocks of a partition into one."""
    source: Any = partition.source
    try:
        source.arrive(this_node())
        return source.materialized()
    except Exception as error:  # noqa: BLE001 -- raised again, as the task's
        failure = travelling(error)
    raise failure


def copies(
    references: Sequence[ObjectRef], indexes: Sequence[tuple[int, ...]], timeout: float
) -> Iterator[Any]:
    """Yield blocks, one by one, to be kept where this runs."""
    for reference, index in zip(references, indexes, strict=True):
        yield fetched([reference], [index], timeout)[0]


def pieces(result: Any, output: int | None) -> Any:
    """Return the blocks that a task has made, each as a result of its own."""
    blocks = list(result if output is None else result[output])
    return blocks[0] if len(blocks) == 1 else blocks


RUN: Final = ray.remote(run)
TOGETHER: Final = ray.remote(together)
COPIES: Final = ray.remote(copies)
PIECES: Final = ray.remote(pieces)
