"""Remote functions that run on the nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import ray
from ray import ObjectRef

from spliter import Partition
from spliter_backends._shared.error_codec import result_not_pickled
from spliter_backends.ray.cluster import fetch_objects
from spliter_backends.ray.errors import as_ray_error
from spliter_backends.ray.source import NodeSource, this_node


@dataclass(frozen=True)
class Placeholder:
    """Placeholder for a result in a task's arguments; `number` indexes the resolved results."""

    number: int


def fill_placeholders(value: Any, results: Sequence[Any]) -> Any:
    """Replace placeholders in an argument by results, also inside lists, tuples and dictionaries.

    Examples
    --------
    >>> fill_placeholders((1, [Placeholder(0), {"more": Placeholder(1)}]), ["a", "b"])
    (1, ['a', {'more': 'b'}])
    """
    if isinstance(value, Placeholder):
        return results[value.number]
    if type(value) in (list, tuple):
        return type(value)(fill_placeholders(item, results) for item in value)
    if type(value) is dict:
        return {key: fill_placeholders(item, results) for key, item in value.items()}
    return value


def run(
    fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any], sources: int, *results: Any
) -> Any:
    """Run a task.

    Returns the result. With partitions, the report and, for each partition, the concatenated blocks
    or None come before it. Ray keeps them at this node, owned by the main program.
    """
    try:
        given, named = (
            fill_placeholders(tuple(args), results),
            fill_placeholders(dict(kwargs), results),
        )
        if not sources:
            return _check_picklable(fn(*given, **named))
        arrived = [
            (value.source, value.token)
            for value in (*given, *named.values())
            if isinstance(value, Partition) and isinstance(value.source, NodeSource)
        ]
        node = this_node()
        for source, _ in arrived:
            source.open_at(node)
        result = _check_picklable(fn(*given, **named))
        reports = [source.report(token) for source, token in arrived]
        return reports, *(source.made for source, _ in arrived), result
    except (Exception, SystemExit) as error:  # noqa: BLE001 -- Ray cancels tasks with others
        failure = as_ray_error(error)
    # Raised outside of the handler: Ray would pickle the context too, which may be unpicklable.
    raise failure


def _check_picklable(result: Any) -> Any:
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


def concatenate_partition(partition: Partition) -> Any:
    """Concatenate the blocks of a partition."""
    source: Any = partition.source
    try:
        source.open_at(this_node())
        return source.materialized()
    except Exception as error:  # noqa: BLE001 -- raised again below
        failure = as_ray_error(error)
    raise failure


def copy_blocks(
    references: Sequence[ObjectRef], indexes: Sequence[tuple[int, ...]], timeout: float
) -> Iterator[Any]:
    """Yield blocks one by one, as objects of the node where this runs."""
    for reference, index in zip(references, indexes, strict=True):
        yield fetch_objects([reference], [index], timeout)[0]


def separate_blocks(result: Any, output: int | None) -> Any:
    """Return each of the blocks that a task has made as a separate result."""
    blocks = list(result if output is None else result[output])
    return blocks[0] if len(blocks) == 1 else blocks


RUN: Final = ray.remote(run)
CONCATENATE: Final = ray.remote(concatenate_partition)
COPY: Final = ray.remote(copy_blocks)
SEPARATE: Final = ray.remote(separate_blocks)
