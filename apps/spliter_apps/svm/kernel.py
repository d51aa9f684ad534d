"""The steps of a Cascade SVM on plain arrays: train, merge, finish, find missing points, improve.

A cascade (Graf, Cosatto, Bottou, Dourdanovic and Vapnik, "Parallel Support Vector Machines:
The Cascade SVM", 2004) trains on parts of the data, keeps the support vectors, and trains on
their union, until one set is left; this solution is fed back to the parts, which are compared
with it::

    part 0 ── train ──┐                     ┌─> part 0 ── what is missing? ──┐
                      ├── merge = solution ─┤                                ├── improve = ...
    part 1 ── train ──┘                     └─> part 1 ── what is missing? ──┘

The paper trains each part again, with the solution. Here a part returns the points that violate
the solution's margins, few after the first iteration: training on the solution and these cannot
make it worse either, and at the optimum there are none.

Points carry their index in the whole collection, so that a support vector that is fed back to its
own part, or arrives on two paths, is used once. (Twice would double its weight.) The steps do not
depend on partitions, so that other distributions of them can use the same code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.base import clone
from sklearn.svm import SVC

from spliter import InvalidArgumentError
from spliter_apps.svm.margins import bounds, dual_objective, near_margin, slacks


@dataclass(frozen=True, eq=False)
class Rows:
    """Training items.

    points (ndarray or CSR matrix of float64, shape (n, n_features)): The points.
    labels (ndarray of intp, shape (n,)): Class numbers.
    weights (ndarray of float64, shape (n,), or None): Positive factors of ``C``; ``None`` if all
        are 1.
    indexes (ndarray of int64, shape (n,)): Row numbers in the whole collection.
    """

    points: Any
    labels: npt.NDArray[np.intp]
    weights: npt.NDArray[np.float64] | None
    indexes: npt.NDArray[np.int64]

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self.labels)

    def __sizeof__(self) -> int:
        """Return the bytes of its arrays, for engines that account for memory."""
        arrays = (self.points, self.labels, self.weights, self.indexes)
        return sum(map(_nbytes, arrays))

    def taken(self, which: Any) -> Rows:
        """Return a copy of some of the items; integers also give their order."""
        return Rows(
            self.points[which],
            self.labels[which],
            None if self.weights is None else self.weights[which],
            self.indexes[which],
        )

    @classmethod
    def concatenated(cls, several: Sequence[Rows]) -> Rows:
        """Concatenate items; if some have weights, those of the others are 1."""
        if len(several) == 1:
            return several[0]
        weights = None
        if any(rows.weights is not None for rows in several):
            weights = np.concatenate(
                [np.ones(len(rows)) if rows.weights is None else rows.weights for rows in several]
            )
        return cls(
            stack_points([rows.points for rows in several]),
            np.concatenate([rows.labels for rows in several]),
            weights,
            np.concatenate([rows.indexes for rows in several]),
        )


def _nbytes(array: Any) -> int:
    """Return the bytes of an array or CSR matrix, 0 for None."""
    buffers = (getattr(array, name, None) for name in ("indices", "indptr"))
    own = array.data if hasattr(array, "indptr") else array
    return sum(buffer.nbytes for buffer in (own, *buffers) if buffer is not None)


def stack_points(points: Sequence[Any]) -> Any:
    """Concatenate points along axis 0; sparse if one of them is."""
    if any(map(sparse.issparse, points)):
        return sparse.vstack(list(points), format="csr")
    return np.concatenate(points)


@dataclass(frozen=True, eq=False)
class SupportSet:
    """Support vectors of some data, and the model trained on them.

    rows: The support vectors; without a model, all candidates for support vectors.
    model: Trained on class numbers; ``None`` if no model was trained on exactly these rows.
    objectives: For a solution: the dual objective after each iteration so far.
    converged: For a solution: whether no improvement beyond the tolerance is possible.
    """

    rows: Rows
    model: SVC | None = None
    objectives: tuple[float, ...] = ()
    converged: bool = False

    def __sizeof__(self) -> int:
        """Return the bytes of the rows and coefficients; the model shares the points."""
        coefficients = None if self.model is None else self.model.dual_coef_
        return self.rows.__sizeof__() + _nbytes(coefficients)


def train(
    rows: Rows,
    svc: SVC,
    *,
    replacements: Rows | None = None,
    margin_error: float = 0.0,
    exact: bool = False,
) -> SupportSet | None:
    """Find the support vectors among some items without duplicates; ``None`` if there are none.

    `replacements` are additional items for training only. `margin_error` is the expected error of
    the margins, in units of the margin: items within this distance of a margin are kept as well, as
    they may become support vectors. `exact` says that the rows are all data, so that the model must
    equal SVC's own: with a callable kernel it then keeps all points, as SVC does.

    The gamma of `svc` is a number and its class weights, if any, are by class number: ``"scale"``
    and ``"balanced"`` depend on all data. Items of a single class are all kept: any of them may be
    a support vector against another class. The set has a model only if it was trained on these rows
    alone: not for a single class, replacements or a margin error.

    Examples
    --------
    >>> points = np.array([[0.0], [1.0], [4.0], [9.0]])
    >>> rows = Rows(points, np.array([0, 0, 1, 1]), None, np.array([70, 71, 72, 73]))
    >>> svc = SVC(kernel="linear", gamma=1.0)
    >>> train(rows, svc).rows.indexes
    array([71, 72])
    >>> train(rows, svc, margin_error=0.9).rows.indexes
    array([70, 71, 72])
    """
    if not len(rows):
        return None
    everything = rows if replacements is None else Rows.concatenated([rows, replacements])
    if everything.labels.min() == everything.labels.max():
        return SupportSet(rows)
    model = _fit_svc(svc, everything)
    if everything is not rows or margin_error:
        vectors = everything.points[model.support_]
        kept = near_margin(model, vectors, rows.points, rows.labels, margin_error)
        kept[model.support_[model.support_ < len(rows)]] = True
        return SupportSet(rows.taken(kept))
    if not callable(svc.kernel):
        # The model shares this array, so it is sent once.
        return SupportSet(replace(rows.taken(model.support_), points=model.support_vectors_), model)
    if exact:
        return SupportSet(rows, model)
    # With a callable kernel the model keeps all its training points. The solution on the support
    # vectors alone is the same, within `tol`.
    rows = rows.taken(np.sort(model.support_))
    smaller = _fit_svc(svc, rows)
    smaller.fit_status_ = max(smaller.fit_status_, model.fit_status_)
    return SupportSet(rows, smaller)


def _fit_svc(svc: SVC, rows: Rows) -> SVC:
    model: SVC = clone(svc)
    try:
        return model.fit(rows.points, rows.labels, sample_weight=rows.weights)
    except ValueError as error:
        raise InvalidArgumentError(f"SVC cannot be trained on the points: {error}") from error


@dataclass(frozen=True, eq=False)
class MarginViolations:
    """Items that violate the margins of a solution.

    rows: Items inside or beyond the margins that are not support vectors of the solution.
    gap: Upper bound of the rise of the objective with them: by duality ``C`` times the slack of
        each of them.
    """

    rows: Rows
    gap: float

    def __sizeof__(self) -> int:
        """Return the bytes of its arrays."""
        return self.rows.__sizeof__()


def find_violations(rows: Rows, solution: SupportSet) -> MarginViolations:
    """Find items, not in a solution, that violate its margins.

    Examples
    --------
    >>> points = np.array([[0.0], [1.0], [4.0], [9.0]])
    >>> rows = Rows(points, np.array([0, 0, 1, 1]), None, np.array([70, 71, 72, 73]))
    >>> solution = train(rows.taken([0, 3]), SVC(kernel="linear", gamma=1.0))
    >>> find_violations(rows, solution).rows.indexes
    array([71, 72])
    """
    assert solution.model is not None, "a solution has been trained"
    if not len(rows):
        return MarginViolations(rows, 0.0)
    model = solution.model
    short = slacks(model, support(solution).points, rows.points, rows.labels)
    short[np.isin(rows.indexes, solution.rows.indexes)] = 0.0
    gap = float(bounds(model, rows.labels, rows.weights) @ short)
    return MarginViolations(rows.taken(short > 0), gap)


def improve(
    found: Sequence[MarginViolations], svc: SVC, tol: float, last: SupportSet
) -> SupportSet:
    """Train the solution again with its missing items, unless they are within the tolerance.

    `tol` is relative to the dual objective. Returns the same or a better solution, with its
    objective appended.
    """
    if sum(each.gap for each in found) <= tol * abs(last.objectives[-1]):
        return replace(last, objectives=(*last.objectives, last.objectives[-1]), converged=True)
    better = train(merge_rows([last, *(SupportSet(each.rows) for each in found)]), svc)
    assert better is not None and better.model is not None, "there is more than one class"
    objective = dual_objective(better.model, support(better).points)
    # The objective rises in each iteration, up to the tolerance of the SVCs.
    rise = objective - last.objectives[-1]
    return replace(
        better,
        objectives=(*last.objectives, objective),
        converged=bool(rise <= tol * abs(objective)),
    )


def support(found: SupportSet) -> Rows:
    """Return the support vectors of a model in the model's order, one for each coefficient."""
    assert found.model is not None, "only what has been trained has support vectors"
    # With a callable kernel the rows are the training points of the second fit.
    return found.rows.taken(found.model.support_) if callable(found.model.kernel) else found.rows


def merge_rows(sets: Sequence[SupportSet]) -> Rows:
    """Return the union of several sets, without duplicates, sorted by index."""
    rows = Rows.concatenated([found.rows for found in sets])
    if np.all(np.diff(rows.indexes) > 0):
        return rows
    _, first = np.unique(rows.indexes, return_index=True)
    return rows.taken(first)


def merge(sets: Sequence[SupportSet | None], svc: SVC, *, exact: bool = False) -> SupportSet | None:
    """Find the support vectors in the union of several sets; a single set with a model stays."""
    present = [found for found in sets if found is not None]
    if not present:
        return None
    if len(present) == 1 and present[0].model is not None:
        return present[0]
    return train(merge_rows(present), svc, exact=exact)


def finish(sets: Sequence[SupportSet | None], svc: SVC, *, exact: bool = False) -> SupportSet:
    """Merge the remaining sets into the solution of the first iteration, with its objective.

    If `exact`, the sets are all items, untrained.
    """
    merged = merge(sets, svc, exact=exact)
    assert merged is not None, "the first iteration finds support vectors"
    assert merged.model is not None, "there is more than one class in the end"
    objective = dual_objective(merged.model, support(merged).points)
    return replace(merged, objectives=(objective,), converged=exact)
