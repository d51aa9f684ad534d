"""First pass of a Cascade SVM over its data, and reading of the training items in later passes.

One task per partition checks points, labels and weights and returns the properties needed of all
data: the number of items of each class, and the variance of the points (for ``gamma="scale"``).
The client merges them in the order of the blocks, so that rounding does not depend on the order
in which tasks finish.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from sklearn.utils.multiclass import check_classification_targets

from spliter import InvalidArgumentError, Partition, task
from spliter_apps._blocks import Schema, inspect, points_of
from spliter_apps._labels import Array, check_one_kind, distinct, encode_labels, label_column
from spliter_apps._moments import Moments
from spliter_apps._row_values import as_array, as_weights
from spliter_apps.svm.kernel import Rows, stack_points

BlockIndex: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class PartitionSummary:
    """Results of the first pass for one partition.

    first: Index of its first block.
    schema: Schema of its points.
    classes (ndarray, shape (n_classes,)): Its labels, sorted.
    counts, positive (ndarray of int64, shape (n_classes,)): Items of each class, and those of them
        with a positive weight.
    moments: Moments of its points, if requested.
    """

    first: BlockIndex
    schema: Schema
    classes: Array
    counts: npt.NDArray[np.int64]
    positive: npt.NDArray[np.int64]
    moments: Moments | None


@dataclass(frozen=True, eq=False)
class DataSummary:
    """Results of the first pass for all data.

    schema: Schema of the points.
    classes (ndarray, shape (n_classes,)): All labels, sorted; at least two.
    counts, positive (ndarray of int64, shape (n_classes,)): Items of each class, and those of them
        with a positive weight.
    moments: Moments of the points, if requested.
    positive_of (mapping of tuple of int to ndarray of int64, shape (n_classes,)): `positive` of
        each partition, by the index of its first block.
    """

    schema: Schema
    classes: Array
    counts: npt.NDArray[np.int64]
    positive: npt.NDArray[np.int64]
    moments: Moments | None
    positive_of: Mapping[BlockIndex, npt.NDArray[np.int64]]

    @classmethod
    def of(cls, summaries: Iterable[PartitionSummary]) -> DataSummary:
        """Merge the summaries of all partitions, in the order of their first blocks."""
        ordered = sorted(summaries, key=operator.attrgetter("first"))
        schema = functools.reduce(Schema.merged, [found.schema for found in ordered])
        if not schema.n_items:
            raise InvalidArgumentError(
                "Found array with 0 sample(s) while a minimum of 1 is required"
            )
        classes = distinct([found.classes for found in ordered if len(found.classes)])
        counts = np.zeros(len(classes), dtype=np.int64)
        positive_of = {}
        for found in ordered:
            codes = encode_labels(found.classes, classes)
            counts[codes] += found.counts
            positive_of[found.first] = np.zeros(len(classes), dtype=np.int64)
            positive_of[found.first][codes] = found.positive
        positive = np.sum(list(positive_of.values()), axis=0)
        if len(classes) < 2:
            raise InvalidArgumentError(
                "The number of classes has to be greater than one; got 1 class: "
                f"{classes.tolist()[0]!r}"
            )
        if not positive.all():
            raise InvalidArgumentError(
                f"no item of class {classes[positive == 0].tolist()[0]!r} has a positive weight; "
                "remove the class"
            )
        moments = [found.moments for found in ordered if found.moments is not None]
        total = functools.reduce(Moments.merged, moments) if moments else None
        return cls(schema, classes, counts, positive, total, positive_of)


def _members(block: Any) -> tuple[Any, Any, Any]:
    """Return points, labels and weights (or ``None``) of a block."""
    points, labels, *weights = block
    return points, labels, weights[0] if weights else None


def inspect_partition(partition: Partition, moments: bool) -> PartitionSummary:
    """Check the blocks of a partition, at its location, and summarise them."""
    schema = inspect(partition)
    labels, wanted = [], []
    for index, block in partition.items():
        points, of_block, weights = _members(block)
        rows = points.shape[0]
        labels.append(label_column(of_block, rows, f"block {index} of y"))
        if weights is None:
            wanted.append(np.ones(rows, dtype=bool))
        else:
            wanted.append(as_weights(f"block {index} of sample_weight", weights, rows) > 0)
    filled = [column for column in labels if len(column)] or labels[:1]
    check_one_kind(filled)
    try:
        check_classification_targets(np.concatenate(filled)) if schema.n_items else None
    except (ValueError, TypeError) as error:
        raise InvalidArgumentError(f"{error} (in blocks from {index} on)") from error
    classes = distinct(filled)
    codes = encode_labels(np.concatenate(filled), classes)
    positive = codes[np.concatenate(wanted)]
    return PartitionSummary(
        partition.get_indexes()[0],
        schema,
        classes,
        np.bincount(codes, minlength=len(classes)),
        np.bincount(positive, minlength=len(classes)),
        _moments(partition) if moments else None,
    )


def _moments(partition: Partition) -> Moments:
    blocks = (points_of(_members(block)[0], np.float64) for block in partition)
    return functools.reduce(Moments.merged, map(moments_of, blocks))


def moments_of(points: Any) -> Moments:
    """Return the moments of the elements of points, computed exactly as scikit-learn's SVC does."""
    count = points.shape[0] * points.shape[1]
    if not count:
        return Moments(0, 0.0, 0.0)
    # The merged variance is checked once, for all points.
    with np.errstate(over="ignore", invalid="ignore"):
        mean = float(points.mean())
        if not isinstance(points, np.ndarray):
            squares = points.multiply(points).mean()
            return Moments(count, mean, float(squares - mean * mean))
        return Moments(count, mean, float(points.var()))


def read(partition: Partition, classes: Array) -> Rows:
    """Return the items of a partition with a positive weight, at its location.

    They were checked in the first pass. The points are copied unless they are one float64 block.
    """
    blocks = [_members(block) for block in partition]
    several = [_sorted_csr(points_of(points, np.float64)) for points, _, _ in blocks]
    labels = [as_array("y", of_block).reshape(-1) for _, of_block, _ in blocks]
    weights = [np.asarray(w, np.float64).reshape(-1) for _, _, w in blocks if w is not None]
    rows = Rows(
        several[0] if len(several) == 1 else stack_points(several),
        np.concatenate([encode_labels(column, classes) for column in labels]),
        np.concatenate(weights) if weights else None,
        partition.get_item_indexes(),
    )
    if rows.weights is not None and not (rows.weights > 0).all():
        return rows.taken(rows.weights > 0)
    return rows


def _sorted_csr(points: Any) -> Any:
    """Return a CSR matrix with sorted indices; SVC would sort the block itself in place."""
    if isinstance(points, np.ndarray) or points.has_sorted_indices:
        return points
    return points.sorted_indices()


inspect_task = task(inspect_partition)
