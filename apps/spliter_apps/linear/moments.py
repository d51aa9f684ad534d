"""Compute the mean and covariance of points and targets in one pass over their blocks.

One task per partition; only a matrix as wide as the columns crosses the network for each. Sums are
centred batch by batch, so that columns far from zero lose no digits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spliter import InvalidArgumentError, Partition, batches
from spliter_apps._blocks import Schema, block_schema, dense, points_of
from spliter_apps._data import Data
from spliter_apps._moments import Moments
from spliter_apps._results import combine
from spliter_apps.kmeans.kernel import SCRATCH_BYTES, rows_within_scratch
from spliter_apps.kmeans.points import check_point_weights
from spliter_apps.neighbors.inspection import Targets, concatenate_targets

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Summary:
    """Description of points, and of their targets if there are any.

    schema: Columns and dtype of the points.
    targets: Columns of the targets.
    moments: Weighted mean and covariance of the columns of points and targets, in this order.
    """

    schema: Schema
    targets: Targets | None
    moments: Moments

    def merged(self, other: Summary) -> Summary:
        """Return the description of these rows and others."""
        targets = self.targets
        if targets is not None and other.targets is not None:
            targets = targets.merged(other.targets)
        return Summary(
            self.schema.merged(other.schema), targets, self.moments.merged(other.moments)
        )

    def products(self, *, centred: bool) -> FloatArray:
        """Return the weighted sums of the products of all pairs of columns.

        Minus their means if `centred`.
        """
        mean, products = self.moments.mean, self.moments.variance
        if not centred:
            products = products + np.outer(mean, mean)
        return np.asarray(self.moments.count * products)


def summarise(data: Data, *, weighted: bool = False) -> Summary:
    """Describe all rows, with one task per partition."""
    futures = data.parts.map(_summarise, weighted)
    columns = data.parts.grid.extent[1] if len(data.parts.grid.extent) > 1 else None
    found: Summary = combine(Summary.merged, futures, 8 * (columns or 1) ** 2)
    if not found.schema.n_items:
        raise InvalidArgumentError("Found array with 0 sample(s) while a minimum of 1 is required.")
    if not found.moments.count:
        raise InvalidArgumentError("Sample weights must contain at least one non-zero number.")
    return found


def _summarise(partition: Partition, weighted: bool) -> Summary:
    """Check and describe the blocks of a partition; the body of a task."""
    reader = _Reader(weighted)
    blocks = reader.checked(partition)
    first = next(blocks)
    width = sum(part.shape[1] for part in first[:2])
    total = Moments(0, np.zeros(width), np.zeros((width, width)))
    for batch in batches(_chain(first, blocks), SCRATCH_BYTES, rows=rows_within_scratch(width)):
        total = total.merged(moments_of(*batch))
    assert reader.schema is not None
    return Summary(reader.schema, reader.targets, total)


def _chain(first: Any, others: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from others


def moments_of(points: Any, targets: FloatArray, weights: FloatArray) -> Moments:
    """Return the weighted mean and covariance of the columns of some rows.

    Examples
    --------
    >>> found = moments_of(np.array([[1.0], [3.0]]), np.array([[0.0], [2.0]]), np.ones(2))
    >>> found.count, found.mean, found.variance
    (2.0, array([2., 1.]), array([[1., 1.],
           [1., 1.]]))
    """
    columns = np.hstack([dense(points).astype(np.float64, copy=False), targets])
    count = float(weights.sum())
    if not count:
        return Moments(0, np.zeros(columns.shape[1]), np.zeros((columns.shape[1],) * 2))
    mean = weights @ columns / count
    columns -= mean
    columns *= np.sqrt(weights)[:, None]
    return Moments(count, mean, columns.T @ columns / count)


class _Reader:
    """Checks blocks as they are read, and describes them."""

    def __init__(self, weighted: bool) -> None:
        self.weighted = weighted
        self.schema: Schema | None = None
        self.targets: Targets | None = None

    def checked(self, partition: Partition) -> Iterator[tuple[Any, FloatArray, FloatArray]]:
        """Yield the points, targets and weights of each block; each in two, two and one axes."""
        for index, block in partition.items():
            members = block if isinstance(block, tuple) else (block,)
            schema = block_schema(index, block)
            self.schema = schema if self.schema is None else self.schema.merged(schema)
            given, rows = members[1:], schema.n_items
            weights = np.ones(rows)
            if self.weighted:
                what = f"the weights of block {index}"
                weights = check_point_weights(given[-1], rows, what)
                given = given[:-1]
            targets = self._targets(given[0], f"block {index}") if given else np.empty((rows, 0))
            yield points_of(members[0], schema.dtype), targets, weights

    def _targets(self, block: Any, where: str) -> FloatArray:
        values, names = concatenate_targets([(where, block)])
        if values.dtype.kind not in "biuf":
            raise InvalidArgumentError(
                f"y, {where}: a regression needs numbers, got {values[:3].tolist()} of dtype "
                f"{values.dtype}; convert with astype(float)"
            )
        found = Targets.of(values, "values", names)
        self.targets = found if self.targets is None else self.targets.merged(found)
        return (values if values.ndim == 2 else values[:, None]).astype(np.float64)
