"""Train estimators block by block with ``partial_fit``, and read rows in mini-batches.

:func:`partial_fit` is a chain of tasks: the model is sent from location to location, and at each it
is trained on the blocks there, one by one. Only the model moves::

    model ──> A: block 0, 2, 4 ──> B: block 1, 3, 5 ──> fitted     (in_order=False: one hop per location)
    model ──> A: 0 ──> B: 1 ──> A: 2 ──> B: 3 ──> A: 4 ──> B: 5    (in_order=True: as one process would)
"""  # noqa: E501  # the drawing

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spliter import InvalidArgumentError, Partition, Split, gather
from spliter.backend import check_count, concatenate, count_rows, take_rows
from spliter_apps._differences import Names, SameColumns, native, refuse_masked
from spliter_apps._labels import check_one_kind
from spliter_apps._row_values import split_with

ONE_BLOCK_EACH = 2**31 - 1
"""Partitions per location that give every block a partition of its own."""


def partial_fit(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    sample_weight: Any = None,
    passes: int = 1,
    in_order: bool = False,
    backend: str | None = None,
    **fit_params: Any,
) -> Any:
    """Train an estimator that has ``partial_fit`` on blocks in place.

    Parameters
    ----------
    model : estimator
        With ``partial_fit``. Not modified; the result is a copy.
    X : collection, shape (n, n_features)
        As for :func:`spliter.split`; one block along axis 1. Lazy collections are computed and kept
        in the engine's memory during the call.
    y, sample_weight : collection or array-like of length n, optional
        In memory, or blocked like `X`.
    passes : int
        Number of passes over the blocks.
    in_order : bool
        If False, one task per location: the model is trained on all blocks of one location before
        those of the next, each in the order of the collection. The result then depends on the
        locations of the blocks as far as the estimator depends on the order of rows. If True,
        training follows the order of the collection and gives the result of a loop in one process,
        with one task, and one transfer of the model, per run of blocks at one location.
    backend : str, optional
        As for :func:`spliter.split`.
    **fit_params
        Further arguments of ``partial_fit``, the same for every block: ``classes=[0, 1]``, which
        classifiers need on the first call.

    Returns
    -------
    estimator
        The trained copy.

    Raises
    ------
    InvalidArgumentError
        If there is no ``partial_fit``, `passes` is less than 1, `X` has several blocks along
        axis 1, the columns of two blocks have other names or another order, elements are masked,
        labels are of several kinds, or the model refuses a block (by a ``ValueError`` or
        ``TypeError``); names the block.
    AlignmentError, UnsupportedCollectionError, BlockLostError
        As for :func:`spliter.split`.

    Notes
    -----
    Tasks depend on each other, so only one runs at a time: this saves transfers, not time. Each
    task trains a copy of the model, so that the engine can repeat it. Empty blocks are skipped, and
    numbers are passed to the model in the byte order of the machine.

    Examples
    --------
    >>> import numpy as np
    >>> class Mean:
    ...     total, rows = 0.0, 0
    ...
    ...     def partial_fit(self, X):
    ...         self.total, self.rows = self.total + X.sum(), self.rows + len(X)
    ...         return self
    >>> fitted = partial_fit(Mean(), [np.ones((3, 1)), np.full((1, 1), 5.0)])
    >>> float(fitted.total / fitted.rows)
    2.0
    """
    if not hasattr(model, "partial_fit"):
        raise InvalidArgumentError(
            f"{type(model).__name__} has no partial_fit; use an estimator that has it"
        )
    check_count("passes", passes)
    aligned = {"y": y, "sample_weight": sample_weight}
    names = ["X", *(name for name, value in aligned.items() if value is not None)]
    per_location = ONE_BLOCK_EACH if in_order else 1
    with split_with(X, aligned, backend=backend, partitions_per_location=per_location) as parts:
        state: Any = _Progress(model)
        for _ in range(passes):
            for run in _runs(parts):
                state = run[0].submit(_learn, state, names, fit_params, *run[1:])
        return gather([state])[0].model


@dataclass(frozen=True)
class _Progress:
    """A model, with the names of the columns and a label of the blocks it was trained on."""

    model: Any
    columns: list[Names] | None = None
    label: npt.NDArray[Any] = dataclasses.field(default_factory=lambda: np.empty(0))


def _runs(parts: Split) -> list[list[Partition]]:
    """Group consecutive partitions, in the order of their first blocks, by location."""
    groups = itertools.groupby(parts, key=lambda partition: partition.location)
    return [list(run) for _, run in groups]


def _learn(
    first: Partition,
    state: _Progress,
    names: Sequence[str],
    fit_params: Mapping[str, Any],
    *others: Partition,
) -> _Progress:
    """Continue training with the blocks at a location; the body of a task."""
    learner, columns, label = copy.deepcopy(state.model), SameColumns(state.columns), state.label
    for index, block in itertools.chain.from_iterable(each.items() for each in (first, *others)):
        columns.checked(block)
        members = block if len(names) > 1 else (block,)
        for name, member in zip(names, members, strict=True):
            refuse_masked(member, f"block {index} of {name}")
        if not count_rows(block):
            continue
        points, *values = map(native, members)
        if "y" in names and not hasattr(values[0], "tocsr"):
            before, label = label, np.asarray(values[0])[:1]
            check_one_kind([before, label])
        try:
            learner.partial_fit(points, **dict(zip(names[1:], values, strict=True)), **fit_params)
        except (ValueError, TypeError) as error:
            raise InvalidArgumentError(
                f"{type(learner).__name__}.partial_fit, block {index}: {error}"
            ) from error
    return _Progress(learner, columns.names, label)


class MiniBatches:
    """Iterable over the rows of a partition in batches of equal size, for use at its location.

    For loops over a fixed number of rows, such as those of neural networks. Batches may span
    several blocks; only the rows of such batches are copied, unless rows are shuffled.

    Parameters
    ----------
    partition : Partition
        At its location: the argument of a task.
    size : int
        Rows per batch; the last batch has the remaining rows.
    seed : int, optional
        Shuffle the rows within each block, differently in each epoch. The order of blocks stays.
    drop_last : bool
        Whether to skip a last batch with fewer rows.

    Raises
    ------
    InvalidArgumentError
        If `size` is less than 1; when iterated, if the columns of two blocks have other names or
        another order.

    Examples
    --------
    >>> import numpy as np
    >>> from spliter import split
    >>> x, y = [np.arange(3), np.arange(3, 8)], [np.zeros(3), np.ones(5)]
    >>> (partition,) = split(x, y, partitions_per_location=1)
    >>> def sums(partition):
    ...     return [(int(x.sum()), int(y.sum())) for x, y in MiniBatches(partition, 4)]
    >>> partition.submit(sums).result()
    [(6, 1), (22, 4)]
    """

    def __init__(
        self, partition: Partition, size: int, *, seed: int | None = None, drop_last: bool = False
    ) -> None:
        check_count("size", size)
        self._partition = partition
        self._size = size
        self._seed = seed
        self._drop_last = drop_last
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration, which determines how rows are shuffled.

        Parameters
        ----------
        epoch : int
            Counted from 0; each iteration increments it.
        """
        self._epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        """Yield batches: blocks, or tuples of aligned blocks, of `size` rows."""
        epoch, self._epoch = self._epoch, self._epoch + 1
        held: list[Any] = []
        rows = 0
        for block in self._blocks(epoch):
            length, start = count_rows(block), 0
            while start < length:
                stop = min(start + self._size - rows, length)
                held.append(take_rows(block, slice(start, stop)))
                rows += stop - start
                start = stop
                if rows == self._size:
                    yield concatenate(held)
                    held, rows = [], 0
        if held and not self._drop_last:
            yield concatenate(held)

    def _blocks(self, epoch: int) -> Iterator[Any]:
        columns = SameColumns()
        for index, block in self._partition.items():
            columns.checked(block)
            if self._seed is None:
                yield block
            else:
                random = np.random.default_rng((self._seed, epoch, *index))
                yield take_rows(block, random.permutation(count_rows(block)))
