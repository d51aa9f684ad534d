"""The steps of a Cascade SVM on plain arrays: train, merge, conclude, look again.

A cascade (Graf, Cosatto, Bottou, Dourdanovic and Vapnik, "Parallel Support Vector Machines:
The Cascade SVM", 2004) trains on parts of the data, keeps the support vectors, and trains on
these together, until one set is left; the set is fed back to the parts, which are looked at
again in the light of it::

    part 0 ── train ──┐                     ┌─> part 0 ── what is missing? ──┐
                      ├── merge = solution ─┤                                ├── improve = ...
    part 1 ── train ──┘                     └─> part 1 ── what is missing? ──┘

There the source trains each part again, with the solution. Here a part hands over the points on
the wrong side of the solution's margins, a few of a part that has been seen once: training on the
solution and these alone cannot make it worse either, and at the optimum there are none.

Points carry their index in the whole collection, so that a support vector that is fed back to
the part it came from, or that comes up on two ways, is there once. (Twice would mean twice
its weight.) Nothing here knows about partitions, so that other ways to distribute the steps
can be compared with the same numerics.
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
    """Items of training data.

    Parameters
    ----------
    points : ndarray or CSR matrix of float64, shape (n, n_features)
        The points.
    labels : ndarray of intp, shape (n,)
        Numbers of their classes.
    weights : ndarray of float64, shape (n,), or None
        Positive weights, by which ``C`` is multiplied; ``None`` for ones.
    indexes : ndarray of int64, shape (n,)
        Their row numbers in the whole collection.
    """

    points: Any
    labels: npt.NDArray[np.intp]
    weights: npt.NDArray[np.float64] | None
    indexes: npt.NDArray[np.int64]

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self.labels)

    def __sizeof__(self) -> int:
        """Return the bytes of its arrays, for engines that keep account of memory."""
        arrays = (self.points, self.labels, self.weights, self.indexes)
        return sum(map(_nbytes, arrays))

    def taken(self, which: Any) -> Rows:
        """Return some of the items, a copy.

        Parameters
        ----------
        which : ndarray of int or bool
            Which, and in what order.

        Returns
        -------
        Rows
            These.
        """
        return Rows(
            self.points[which],
            self.labels[which],
            None if self.weights is None else self.weights[which],
            self.indexes[which],
        )

    @classmethod
    def concatenated(cls, several: Sequence[Rows]) -> Rows:
        """Put items one after the other.

        Parameters
        ----------
        several : sequence of Rows
            At least one. Where some have weights, those of the others are one.

        Returns
        -------
        Rows
            All of them.
        """
        if len(several) == 1:
            return several[0]
        weights = None
        if any(rows.weights is not None for rows in several):
            weights = np.concatenate(
                [np.ones(len(rows)) if rows.weights is None else rows.weights for rows in several]
            )
        return cls(
            stacked([rows.points for rows in several]),
            np.concatenate([rows.labels for rows in several]),
            weights,
            np.concatenate([rows.indexes for rows in several]),
        )


def _nbytes(array: Any) -> int:
    """Return the bytes of an array or CSR matrix, 0 for None."""
    buffers = (getattr(array, name, None) for name in ("indices", "indptr"))
    own = array.data if hasattr(array, "indptr") else array
    return sum(buffer.nbytes for buffer in (own, *buffers) if buffer is not None)


def stacked(points: Sequence[Any]) -> Any:
    """Put points one after the other.

    Parameters
    ----------
    points : sequence of (ndarray or sparse matrix)
        At least one.

    Returns
    -------
    ndarray or CSR matrix
        Sparse if one of them is.
    """
    if any(map(sparse.issparse, points)):
        return sparse.vstack(list(points), format="csr")
    return np.concatenate(points)


@dataclass(frozen=True, eq=False)
class SupportSet:
    """What a part of the data comes down to: its support vectors and the model they make.

    Parameters
    ----------
    rows : Rows
        The support vectors; without a model all items that may be some.
    model : SVC or None
        Trained on labels that are numbers of classes; ``None`` where these rows alone
        were not trained on.
    objectives : tuple of float
        Of a solution: the dual objective after each iteration so far.
    converged : bool
        Of a solution: whether there is nothing left to gain.
    """

    rows: Rows
    model: SVC | None = None
    objectives: tuple[float, ...] = ()
    converged: bool = False

    def __sizeof__(self) -> int:
        """Return the bytes of its arrays; the model has the same points, and coefficients."""
        coefficients = None if self.model is None else self.model.dual_coef_
        return self.rows.__sizeof__() + _nbytes(coefficients)


def train(
    rows: Rows,
    svc: SVC,
    *,
    stand_ins: Rows | None = None,
    doubt: float = 0.0,
    exact: bool = False,
) -> SupportSet | None:
    """Find the support vectors among some items.

    Parameters
    ----------
    rows : Rows
        The items, each once.
    svc : SVC
        Not trained. Its gamma is a number and its class weights, if any, are by class
        number: what ``"scale"`` and ``"balanced"`` mean depends on all data.
    stand_ins : Rows, optional
        Other items to train with and to forget afterwards.
    doubt : float
        How far the margins may be from those of all data, in units of the margin. Items so
        close to one are kept as well, as they may become support vectors.
    exact : bool
        Whether these are all items, so that the model is to be SVC's own: with a callable
        kernel it then keeps all points, as SVC does.

    Returns
    -------
    SupportSet or None
        ``None`` if there are no items. Items of one class alone are all kept: any of them may be
        a support vector against another class. There is a model only if the set is that of
        these rows alone: not then, nor with stand-ins or doubt.

    Examples
    --------
    >>> points = np.array([[0.0], [1.0], [4.0], [9.0]])
    >>> rows = Rows(points, np.array([0, 0, 1, 1]), None, np.array([70, 71, 72, 73]))
    >>> svc = SVC(kernel="linear", gamma=1.0)
    >>> train(rows, svc).rows.indexes
    array([71, 72])
    >>> train(rows, svc, doubt=0.9).rows.indexes
    array([70, 71, 72])
    """
    if not len(rows):
        return None
    everything = rows if stand_ins is None else Rows.concatenated([rows, stand_ins])
    if everything.labels.min() == everything.labels.max():
        return SupportSet(rows)
    model = _fitted(svc, everything)
    if everything is not rows or doubt:
        vectors = everything.points[model.support_]
        kept = near_margin(model, vectors, rows.points, rows.labels, doubt)
        kept[model.support_[model.support_ < len(rows)]] = True
        return SupportSet(rows.taken(kept))
    if not callable(svc.kernel):
        # One array for both, so that it is sent once.
        return SupportSet(replace(rows.taken(model.support_), points=model.support_vectors_), model)
    if exact:
        return SupportSet(rows, model)
    # With a callable kernel the model keeps all it was trained on. The solution on the support
    # vectors alone is the same one, within `tol`.
    rows = rows.taken(np.sort(model.support_))
    smaller = _fitted(svc, rows)
    smaller.fit_status_ = max(smaller.fit_status_, model.fit_status_)
    return SupportSet(rows, smaller)


def _fitted(svc: SVC, rows: Rows) -> SVC:
    model: SVC = clone(svc)
    try:
        return model.fit(rows.points, rows.labels, sample_weight=rows.weights)
    except ValueError as error:
        raise InvalidArgumentError(f"SVC cannot be trained on the points: {error}") from error


@dataclass(frozen=True, eq=False)
class Missing:
    """What a solution lacks of some items.

    Parameters
    ----------
    rows : Rows
        Those that are on the wrong side of its margins and no support vectors of it.
    gap : float
        By how much the objective may rise with them, at most: by duality ``C`` times the slack
        of each of them.
    """

    rows: Rows
    gap: float

    def __sizeof__(self) -> int:
        """Return the bytes of its arrays."""
        return self.rows.__sizeof__()


def missing(rows: Rows, solution: SupportSet) -> Missing:
    """Look for items that a solution does not do justice to.

    Parameters
    ----------
    rows : Rows
        The items.
    solution : SupportSet
        With a model.

    Returns
    -------
    Missing
        Some of the items.

    Examples
    --------
    >>> points = np.array([[0.0], [1.0], [4.0], [9.0]])
    >>> rows = Rows(points, np.array([0, 0, 1, 1]), None, np.array([70, 71, 72, 73]))
    >>> solution = train(rows.taken([0, 3]), SVC(kernel="linear", gamma=1.0))
    >>> missing(rows, solution).rows.indexes
    array([71, 72])
    """
    assert solution.model is not None, "a solution has been trained"
    if not len(rows):
        return Missing(rows, 0.0)
    model = solution.model
    short = slacks(model, support(solution).points, rows.points, rows.labels)
    short[np.isin(rows.indexes, solution.rows.indexes)] = 0.0
    gap = float(bounds(model, rows.labels, rows.weights) @ short)
    return Missing(rows.taken(short > 0), gap)


def improve(found: Sequence[Missing], svc: SVC, tol: float, last: SupportSet) -> SupportSet:
    """End a further iteration: train the solution again with what it lacks, if that may matter.

    Parameters
    ----------
    found : sequence of Missing
        Of all items, at least one.
    svc : SVC
        As for :func:`train`.
    tol : float
        The relative change of the dual objective that does not matter.
    last : SupportSet
        The solution.

    Returns
    -------
    SupportSet
        The solution, or a better one, with its objective after those of the iterations before.
    """
    if sum(each.gap for each in found) <= tol * abs(last.objectives[-1]):
        return replace(last, objectives=(*last.objectives, last.objectives[-1]), converged=True)
    better = train(united([last, *(SupportSet(each.rows) for each in found)]), svc)
    assert better is not None and better.model is not None, "there is more than one class"
    objective = dual_objective(better.model, support(better).points)
    # It rises in each iteration; if it falls, that is within the tolerance of the SVCs.
    rise = objective - last.objectives[-1]
    return replace(
        better,
        objectives=(*last.objectives, objective),
        converged=bool(rise <= tol * abs(objective)),
    )


def support(found: SupportSet) -> Rows:
    """Return the support vectors of a model as it numbers them.

    Parameters
    ----------
    found : SupportSet
        With a model.

    Returns
    -------
    Rows
        As many as the model has coefficients.
    """
    assert found.model is not None, "only what has been trained has support vectors"
    # With a callable kernel the rows are what the model was trained on for the second time.
    return found.rows.taken(found.model.support_) if callable(found.model.kernel) else found.rows


def united(sets: Sequence[SupportSet]) -> Rows:
    """Return the support vectors of several parts, each once.

    Parameters
    ----------
    sets : sequence of SupportSet
        At least one.

    Returns
    -------
    Rows
        In the order of their indexes, whatever the order of the sets.
    """
    rows = Rows.concatenated([found.rows for found in sets])
    if np.all(np.diff(rows.indexes) > 0):
        return rows
    _, first = np.unique(rows.indexes, return_index=True)
    return rows.taken(first)


def merge(sets: Sequence[SupportSet | None], svc: SVC, *, exact: bool = False) -> SupportSet | None:
    """Find the support vectors among those of several parts.

    Parameters
    ----------
    sets : sequence of (SupportSet or None)
        What :func:`train`, :func:`retrain` or this function returned; ``None`` has
        nothing to add.
    svc : SVC
        As for :func:`train`.
    exact : bool
        As for :func:`train`.

    Returns
    -------
    SupportSet or None
        Of the union. One set alone comes back as it is if it has a model.
    """
    present = [found for found in sets if found is not None]
    if not present:
        return None
    if len(present) == 1 and present[0].model is not None:
        return present[0]
    return train(united(present), svc, exact=exact)


def conclude(sets: Sequence[SupportSet | None], svc: SVC, *, exact: bool = False) -> SupportSet:
    """End the first iteration: merge the sets that are left.

    Parameters
    ----------
    sets : sequence of (SupportSet or None)
        As for :func:`merge`; not all of them ``None``.
    svc : SVC
        As for :func:`train`.
    exact : bool
        Whether the sets are all items, not trained on.

    Returns
    -------
    SupportSet
        The solution, with its objective.
    """
    merged = merge(sets, svc, exact=exact)
    assert merged is not None, "the first iteration finds support vectors"
    assert merged.model is not None, "there is more than one class in the end"
    objective = dual_objective(merged.model, support(merged).points)
    return replace(merged, objectives=(objective,), converged=exact)
