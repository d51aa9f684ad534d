"""The training data of a neighbours estimator at their location: checks, points and targets."""

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
from spliter_apps._blocks import Schema, dense, points_of, survey

Array: TypeAlias = npt.NDArray[Any]
TargetKind: TypeAlias = Literal["classes", "values"]


@dataclass(frozen=True, eq=False)
class Targets:
    """What targets are, without the targets.

    Parameters
    ----------
    n_outputs : int or None
        Columns; ``None`` if they are one-dimensional.
    dtype : dtype
        Of the values.
    classes : tuple of ndarray
        Sorted labels of each output; none for values.
    counts : tuple of ndarray of int
        How often each of them occurs.
    """

    n_outputs: int | None
    dtype: np.dtype[Any]
    classes: tuple[Array, ...] = ()
    counts: tuple[Array, ...] = ()

    @classmethod
    def of(cls, targets: Array, kind: TargetKind) -> Targets:
        """Describe an array.

        Parameters
        ----------
        targets : ndarray of shape (n,) or (n, n_outputs)
            Labels or values.
        kind : {'classes', 'values'}
            Which of them.

        Returns
        -------
        Targets
            Of these.

        Raises
        ------
        InvalidArgumentError
            If they are not what they are to be: labels, or numbers.
        """
        n_outputs = None if targets.ndim == 1 else targets.shape[1]
        if kind == "values":
            _check_numbers(targets)
            return cls(n_outputs, targets.dtype)
        if len(targets):
            try:
                check_classification_targets(targets)
            except ValueError as error:
                raise InvalidArgumentError(f"y: {error}") from error
        columns = [targets] if n_outputs is None else [targets[:, at] for at in range(n_outputs)]
        found = [np.unique(column, return_counts=True) for column in columns]
        classes, counts = zip(*found, strict=True)
        return cls(n_outputs, targets.dtype, classes, counts)

    def merged(self, other: Targets) -> Targets:
        """Return what these and other targets are.

        Parameters
        ----------
        other : Targets
            Of other rows.

        Returns
        -------
        Targets
            Of all of them.

        Raises
        ------
        InvalidArgumentError
            If they have other columns.
        """
        if self.n_outputs != other.n_outputs:
            raise InvalidArgumentError(
                f"blocks of y have different numbers of columns: {self.n_outputs} and "
                f"{other.n_outputs}"
            )
        classes, counts = [], []
        for mine, its, my_counts, its_counts in zip(
            self.classes, other.classes, self.counts, other.counts, strict=True
        ):
            known, back = np.unique(np.concatenate([mine, its]), return_inverse=True)
            added = np.bincount(back, weights=np.concatenate([my_counts, its_counts]))
            classes.append(known)
            counts.append(added.astype(np.int64))
        dtype = np.result_type(self.dtype, other.dtype)
        return Targets(self.n_outputs, dtype, tuple(classes), tuple(counts))


@dataclass(frozen=True, eq=False)
class Sample:
    """What a part of the training data is, without the data.

    Parameters
    ----------
    schema : Schema
        Of the points.
    targets : Targets or None
        Of the targets, where there are any.
    """

    schema: Schema
    targets: Targets | None

    def merged(self, other: Sample) -> Sample:
        """Return what this part and another one are together."""
        targets = None
        if self.targets is not None and other.targets is not None:
            targets = self.targets.merged(other.targets)
        return Sample(self.schema.merged(other.schema), targets)


def survey_sample(partition: Partition, kind: TargetKind | None) -> Sample:
    """Check the blocks of a partition, at its location, and say what they are.

    Parameters
    ----------
    partition : Partition
        Of points; of points and targets if there is a `kind`.
    kind : {'classes', 'values'} or None
        What the targets are.

    Returns
    -------
    Sample
        Of this partition.

    Raises
    ------
    InvalidArgumentError
        If they cannot be used.
    """
    schema = survey(partition, accept_sparse=True)
    return Sample(schema, None if kind is None else Targets.of(gather_targets(partition), kind))


def gather_targets(partition: Partition) -> Array:
    """Return the targets of a partition of points and targets as one array.

    Parameters
    ----------
    partition : Partition
        At its location.

    Returns
    -------
    ndarray of shape (n,) or (n, n_outputs)
        Checked.

    Raises
    ------
    InvalidArgumentError
        Naming the block that cannot be used.
    """
    checked = [_checked_targets(block[1], index) for index, block in partition.items()]
    if len({array.shape[1:] for array in checked}) > 1:
        shapes = sorted({array.shape[1:] for array in checked})
        raise InvalidArgumentError(f"blocks of y have different columns: shapes (n, ...) {shapes}")
    return checked[0] if len(checked) == 1 else np.concatenate(checked)


def _check_numbers(targets: Array) -> None:
    """Refuse strings and the like, of which there is no mean."""
    try:
        np.add.reduce(targets[:1], axis=None, initial=0)
    except TypeError as error:
        raise InvalidArgumentError(
            f"y: a regressor takes the mean of numbers, got {targets[:3].tolist()} of dtype "
            f"{targets.dtype}; use KNeighborsClassifier for labels"
        ) from error


def _checked_targets(block: Any, index: tuple[int, ...]) -> Array:
    try:
        return np.asarray(
            check_array(block, dtype=None, ensure_2d=False, ensure_min_samples=0, input_name="y")
        )
    except (ValueError, TypeError) as error:
        raise InvalidArgumentError(f"y, block {index}: {error}") from error


def gather_points(partition: Partition, dtype: npt.DTypeLike, *, is_sparse: bool) -> Any:
    """Return the points of a partition, checked before, as one array.

    Parameters
    ----------
    partition : Partition
        At its location; of points, or tuples whose first element is points.
    dtype : dtype
        What to convert them to.
    is_sparse : bool
        Whether to return a sparse matrix.

    Returns
    -------
    ndarray or CSR matrix of shape (n, n_features)
        The only block itself, if it is of that type, without a copy.
    """
    blocks = (block[0] if isinstance(block, tuple) else block for block in partition)
    if is_sparse:
        return stack([sparse.csr_matrix(block, dtype=dtype) for block in blocks], None)
    return stack((points_of(block, dtype) for block in blocks), partition.shape[0])


def stack(arrays: Iterable[Any], n_rows: int | None) -> Any:
    """Put arrays one below the other, with one copy of the values and never two.

    Parameters
    ----------
    arrays : iterable of ndarray or CSR matrix, shape (n, n_columns)
        At least one; the first one says what comes of them. Where dense ones are made one
        by one, only one of them is in memory beside the result.
    n_rows : int or None
        Rows of all together, where that is known.

    Returns
    -------
    ndarray or CSR matrix
        A single one comes back itself.
    """
    remaining = iter(arrays)
    first = next(remaining)
    if sparse.issparse(first):
        rows: list[Any] = [first, *map(sparse.csr_matrix, remaining)]
        return first if len(rows) == 1 else sparse.vstack(rows, format="csr")
    if n_rows is None or first.shape[0] == n_rows:
        kept = [first, *(dense(array) for array in remaining if array.shape[0])]
        return first if len(kept) == 1 else np.concatenate(kept)
    stacked: Array = np.empty((n_rows, *first.shape[1:]), dtype=first.dtype)
    stacked[: len(first)] = first
    start = len(first)
    del first
    for array in map(dense, remaining):
        stacked[start : start + len(array)] = array
        start += len(array)
    return stacked
