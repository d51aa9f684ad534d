"""Check, describe and concatenate the training data of a neighbours estimator at its location."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array

from spliter import InvalidArgumentError, Partition
from spliter_apps._blocks import Schema, dense, inspect, points_of
from spliter_apps._differences import (
    Names,
    check_same_columns,
    check_same_number,
    column_names,
    native,
    refuse_masked,
)
from spliter_apps._labels import check_one_kind, distinct, encode_labels

Array: TypeAlias = npt.NDArray[Any]
TargetKind: TypeAlias = Literal["classes", "values"]


@dataclass(frozen=True, eq=False)
class Targets:
    """Description of targets: shape, names, dtype and classes.

    n_outputs: Columns; ``None`` if they are one-dimensional.
    names: Names of several outputs, if they have any.
    classes: Sorted labels of each output; empty for values.
    counts: Number of occurrences of each label.
    """

    n_outputs: int | None
    dtype: np.dtype[Any]
    names: Names = None
    classes: tuple[Array, ...] = ()
    counts: tuple[Array, ...] = ()

    @classmethod
    def of(cls, targets: Array, kind: TargetKind, names: Names = None) -> Targets:
        """Describe an array of labels or values; reject invalid labels, and what is no number."""
        n_outputs = None if targets.ndim == 1 else targets.shape[1]
        if kind == "values":
            _check_numbers(targets)
            return cls(n_outputs, targets.dtype, names)
        if len(targets):
            try:
                check_classification_targets(targets)
            except (ValueError, TypeError) as error:
                raise InvalidArgumentError(f"y: {error}") from error
        columns = [targets] if n_outputs is None else [targets[:, at] for at in range(n_outputs)]
        found = [np.unique(column, return_counts=True) for column in columns]
        classes, counts = zip(*found, strict=True)
        return cls(n_outputs, targets.dtype, names, classes, counts)

    def merged(self, other: Targets) -> Targets:
        """Return the description of these and other targets together."""
        check_same_columns(self.names, other.names, "all blocks of y")
        check_same_number(self.n_outputs, other.n_outputs, "all blocks of y")
        classes, counts = [], []
        for mine, its, my_counts, its_counts in zip(
            self.classes, other.classes, self.counts, other.counts, strict=True
        ):
            classes.append(distinct([mine, its]))
            counts.append(np.zeros(len(classes[-1]), np.int64))
            counts[-1][encode_labels(mine, classes[-1])] += my_counts
            counts[-1][encode_labels(its, classes[-1])] += its_counts
        try:
            dtype = np.result_type(self.dtype, other.dtype)
        except TypeError as error:
            raise InvalidArgumentError(f"all blocks of y must be of one kind: {error}") from error
        return Targets(self.n_outputs, dtype, self.names, tuple(classes), tuple(counts))


@dataclass(frozen=True, eq=False)
class DataSummary:
    """Description of training data: schema of the points, and targets.

    targets: Description of the targets, if there are any.
    """

    schema: Schema
    targets: Targets | None

    def merged(self, other: DataSummary) -> DataSummary:
        """Return the description of these and other data together."""
        targets = None
        if self.targets is not None and other.targets is not None:
            targets = self.targets.merged(other.targets)
        return DataSummary(self.schema.merged(other.schema), targets)


def inspect_partition(partition: Partition, kind: TargetKind | None) -> DataSummary:
    """Check and describe the blocks of a partition, at its location.

    They are points, and targets if there is a `kind`.
    """
    schema = inspect(partition)
    if kind is None:
        return DataSummary(schema, None)
    targets, names = gather_targets(partition)
    return DataSummary(schema, Targets.of(targets, kind, names))


def gather_targets(partition: Partition) -> tuple[Array, Names]:
    """Return the targets of a partition as one array, and the names of several outputs."""
    return concatenate_targets([(f"block {index}", block[1]) for index, block in partition.items()])


def concatenate_targets(blocks: Iterable[tuple[str, Any]]) -> tuple[Array, Names]:
    """Validate blocks of targets, each with its name in errors; see :func:`gather_targets`."""
    checked, names = [], []
    for where, block in blocks:
        checked.append(_check_targets(block, where))
        names.append(output_names(block))
        check_same_columns(names[0], names[-1], "all blocks of y")
    if len({array.shape[1:] for array in checked}) > 1:
        shapes = sorted({array.shape[1:] for array in checked})
        raise InvalidArgumentError(
            f"all blocks of y must have the same columns, got shapes (n, ...) {shapes}"
        )
    filled = [array for array in checked if len(array)] or checked[:1]
    check_one_kind(filled)
    return filled[0] if len(filled) == 1 else np.concatenate(filled), names[0]


def output_names(targets: Any) -> Names:
    """Return the names of several outputs; that of a single one does not matter.

    Examples
    --------
    >>> import pandas as pd
    >>> output_names(pd.DataFrame({"a": [1], "b": [2]})), output_names(pd.DataFrame({"a": [1]}))
    (('a', 'b'), None)
    """
    names = column_names(targets)
    return names if names is not None and len(names) > 1 else None


def _check_numbers(targets: Array) -> None:
    """Reject strings and other types without a mean."""
    some = targets if targets.dtype == object else targets[:1]
    try:
        np.add.reduce(some, axis=None, initial=0)
    except TypeError as error:
        raise InvalidArgumentError(
            f"y: a regressor needs numbers, got {targets[:3].tolist()} of dtype {targets.dtype}; "
            "use KNeighborsClassifier for labels"
        ) from error


def _check_targets(block: Any, where: str) -> Array:
    refuse_masked(block, f"y, {where}")
    try:
        checked: Array = native(
            check_array(block, dtype=None, ensure_2d=False, ensure_min_samples=0, input_name="y")
        )
        return checked
    except (ValueError, TypeError) as error:
        raise InvalidArgumentError(f"y, {where}: {error}") from error


def gather_points(partition: Partition, dtype: npt.DTypeLike, *, is_sparse: bool) -> Any:
    """Return the points of a partition, already checked, as one array.

    A single block of that dtype is returned without a copy.
    """
    blocks = (block[0] if isinstance(block, tuple) else block for block in partition)
    if is_sparse:
        return stack([sparse.csr_matrix(block, dtype=dtype) for block in blocks], None)
    return stack((points_of(block, dtype) for block in blocks), partition.shape[0])


def stack(arrays: Iterable[Any], n_rows: int | None) -> Any:
    """Concatenate arrays or CSR matrices along axis 0, with at most one copy of the values.

    The first determines the type of the result. Dense ones from a generator are in memory one at a
    time, in addition to the result, if the number of rows is known. A single array is returned
    without a copy.
    """
    remaining = iter(arrays)
    first = next(remaining)
    if sparse.issparse(first):
        rows: list[Any] = [first, *map(sparse.csr_matrix, remaining)]
        return first if len(rows) == 1 else sparse.vstack(rows, format="csr")
    if n_rows is None or first.shape[0] == n_rows:
        kept = [first, *(dense(array) for array in remaining if array.shape[0])]
        return first if len(kept) == 1 else np.concatenate(kept)
    whole: Array = np.empty((n_rows, *first.shape[1:]), dtype=first.dtype)
    whole[: len(first)] = first
    start = len(first)
    del first
    for array in map(dense, remaining):
        whole[start : start + len(array)] = array
        start += len(array)
    return whole
