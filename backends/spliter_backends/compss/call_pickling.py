"""Pickle a call, with futures and partitions replaced by numbers.

COMPSs must see what a task uses, to wait for it and to transfer it. So futures and blocks are
collected from all arguments and become inputs of the PyCOMPSs task; the pickle refers to them by
number.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import cloudpickle

from spliter import Partition
from spliter_backends._shared.unpicklable import not_serializable
from spliter_backends.compss.api import Future
from spliter_backends.compss.future import CompssFuture
from spliter_backends.compss.outcome import ERRORS, TaskFailure, TaskReport
from spliter_backends.compss.source import BlockInputs, remote_source

InputConverter: TypeAlias = Callable[[Partition, int], tuple[BlockInputs, Sequence[Any]]]
"""Takes a partition and the number of its first input; returns its inputs, and which are which."""


@dataclass
class PickledCall:
    """A pickled call, for ``worker.unpickle_call``, and the inputs that it refers to."""

    content: bytes
    inputs: list[Any]


@dataclass(eq=False)
class _CollectedInputs:
    """Inputs and partitions collected while a call is pickled."""

    convert: InputConverter
    inputs: list[Any] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)
    partitions: list[tuple[Partition, BlockInputs]] = field(default_factory=list)
    partition_numbers: dict[int, int] = field(default_factory=dict)

    def future(self, future: Any) -> tuple[Any, ...] | None:
        outcome = future.outcome if isinstance(future, CompssFuture) else None
        if outcome is not None:
            value, error = outcome
            if error is None:
                return "value", value
            return "failure", TaskFailure(ERRORS.encode(error), future.key, TaskReport())
        number = self.numbers.setdefault(id(future), len(self.inputs))
        if number == len(self.inputs):
            self.inputs.append(future)
        return "future", number

    def partition(self, partition: Partition) -> tuple[Any, ...]:
        number = self.partition_numbers.setdefault(id(partition), len(self.partitions))
        if number == len(self.partitions):
            block_inputs, objects = self.convert(partition, len(self.inputs))
            self.inputs.extend(objects)
            self.partitions.append(
                (
                    partition.at_location(
                        remote_source(block_inputs.location),
                        materialize=block_inputs.iterates_concatenated,
                    ),
                    block_inputs,
                )
            )
        return "partition", number


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def __init__(self, file: Any, collected: _CollectedInputs) -> None:
        super().__init__(file, protocol=5)
        self._collected = collected

    def persistent_id(self, obj: Any) -> Any:
        if isinstance(obj, Partition) and obj.executor is not None:
            return self._collected.partition(obj)
        return self._collected.future(obj) if isinstance(obj, Future) else None


def pickle_call(
    fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], convert: InputConverter
) -> PickledCall:
    """Pickle a call."""
    collected = _CollectedInputs(convert)
    file = io.BytesIO()
    try:
        _Pickler(file, collected).dump((fn, tuple(args), dict(kwargs)))
    except (TypeError, AttributeError, pickle.PicklingError, RecursionError, ValueError) as error:
        raise not_serializable(
            fn, args, kwargs, error, _Pickler(io.BytesIO(), collected).dump
        ) from error
    content: bytes = cloudpickle.dumps((file.getvalue(), collected.partitions), protocol=5)
    return PickledCall(content, collected.inputs)
