"""Predictions and scores of a fitted Cascade SVM on blocked points: one task per partition."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.svm import SVC

from spliter import InvalidArgumentError, Partition, gather, task
from spliter_apps._data import Data, open_data
from spliter_apps._labels import check_one_kind, label_column
from spliter_apps._requirements import Requirements
from spliter_apps._row_values import as_weights


def check_labelled(data: Data) -> None:
    """Reject data without labels, and close it."""
    if data.parts.ncollections not in {2, 3}:
        found = data.parts.ncollections
        with data:
            raise InvalidArgumentError(
                "This CascadeSVM estimator requires y to be passed, but the target y is None: pass "
                "points and labels, or a Split made by split(X, y) or split(X, y, sample_weight); "
                f"got a Split of {found} collections"
            )


def predict_blocks(
    estimator: Any, method: str, X: Any, *, dtype: npt.DTypeLike, width: int | None = None
) -> Any:
    """Call a method of an estimator's model on blocked points; the result is blocked like them.

    `width` is the number of columns of the results, ``None`` for one value per point.
    """
    with open_data(X, materialize=False) as data:
        return data.parts.map_blocks(
            _predict_block,
            _requirements(estimator, data),
            _broadcast_model(data.parts[0], estimator.estimator_),
            method,
            dtype=dtype,
            trailing_shape=() if width is None else (width,),
        )


def score_blocks(estimator: Any, X: Any, y: Any, sample_weight: Any) -> float:
    """Return the (weighted) accuracy of an estimator on blocked points."""
    with open_data(X, y, sample_weight, materialize=False) as data:
        check_labelled(data)
        requirements = _requirements(estimator, data)
        model = _broadcast_model(data.parts[0], estimator.estimator_)
        counted = [_count_correct(partition, requirements, model) for partition in data.parts]
        right, of_all = sum(gather(counted))
    if not of_all:
        raise InvalidArgumentError("a score needs at least one point of positive weight")
    return float(right / of_all)


def _requirements(estimator: Any, data: Data) -> Any:
    """Return what tasks need to check blocks; an SVC of dense points takes no sparse ones."""
    accept_sparse = sparse.issparse(estimator.support_vectors_)
    return Requirements.by(estimator, accept_sparse=accept_sparse).of_blocks(data.parts)


@task
def _broadcast_model(partition: Partition, model: SVC) -> SVC:
    """Return the model as a task result, so that the client sends it only once."""
    return model


def _predict_block(
    block: Any, requirements: Requirements, model: SVC, method: str
) -> npt.NDArray[Any]:
    """Call a method of the model on the points of one block."""
    points = requirements.points(block[0] if isinstance(block, tuple) else block)
    # libsvm needs at least one point: use the shape of the result for a dummy point.
    if not points.shape[0]:
        return _call_model(model, method, np.zeros((1, points.shape[1])))[:0]
    return _call_model(model, method, points)


def _call_model(model: SVC, method: str, points: Any) -> npt.NDArray[Any]:
    result: npt.NDArray[Any] = getattr(model, method)(points)
    return result


@task
def _count_correct(
    partition: Partition, requirements: Requirements, model: SVC
) -> npt.NDArray[np.float64]:
    """Return the weight of the correctly classified points of one partition, and of all."""
    total = np.zeros(2)
    for index, (points, labels, *weights) in partition.items():
        result = _predict_block(points, requirements, model, "predict")
        truth = label_column(labels, len(result), f"block {index} of y")
        check_one_kind([result, truth])
        right = result == truth
        if weights:
            of_block = as_weights(f"block {index} of sample_weight", weights[0], len(result))
            total += [of_block[right].sum(), of_block.sum()]
        else:
            total += [right.sum(), len(right)]
    return total
