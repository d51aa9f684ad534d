"""What the classifier and the regressor share: targets beside points, and scores of blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from spliter import InvalidArgumentError, Partition
from spliter_apps._data import check_members, open_data
from spliter_apps._neighbors_base import NeighborsEstimator
from spliter_apps._neighbors_sample import stack
from spliter_apps._neighbors_tasks import Answer, Conclude, stacked
from spliter_apps._neighbors_votes import Weights, check_weights
from spliter_apps._results import combine

Tally = Callable[[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any] | None], Any]
"""Takes truth, prediction and weights of some rows; returns something to be merged."""


TALLY_NBYTES = 1000
"""About what the comparison of a partition comes to: some numbers per output."""


class PredictingNeighbors(NeighborsEstimator):
    """An estimator whose trees have targets beside their points."""

    def __init__(
        self,
        n_neighbors: int = 5,
        *,
        weights: Weights = "uniform",
        algorithm: str = "auto",
        leaf_size: int = 30,
        p: float = 2,
        metric: Any = "minkowski",
        metric_params: dict[str, Any] | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.weights = weights
        self.algorithm = algorithm
        self.leaf_size = leaf_size
        self.p = p
        self.metric = metric
        self.metric_params = metric_params
        self.n_jobs = n_jobs

    def _fit(self, X: Any, y: Any = None) -> None:
        check_weights(self.weights)
        super()._fit(X, y)

    def _predicted(self, X: Any, conclude: Conclude, outputs: Sequence[Any]) -> tuple[Any, ...]:
        """Ask for the neighbours' targets and conclude from them, where the queries are."""
        question, _ = self._nearest(X, with_targets=True)
        return self._asked(X, question, conclude, outputs)

    def _tallied(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        conclude: Conclude,
        tally: Tally,
        merge: Callable[[Any, Any], Any],
    ) -> Any:
        """Compare predictions for blocks with the truth, where the blocks are."""
        check_is_fitted(self, "n_samples_fit_")
        with open_data(X, y, sample_weight, materialize=False) as data:
            weighted = data.parts.ncollections == 3
            if not weighted:
                check_members(data, 2, "split(X, y) or split(X, y, sample_weight)")
            question, _ = self._nearest(X, with_targets=True)
            found = self._asked_blocks(data.parts, question, conclude)
            tallies = [
                partition.submit(tally_answers, answers, tally, weighted)
                for partition, answers in found
            ]
            return combine(merge, tallies, TALLY_NBYTES)


def tally_answers(
    partition: Partition, answers: Sequence[Answer], tally: Tally, weighted: bool
) -> Any:
    """Run at a location: compare predictions with the truth beside the queries."""
    (predicted,) = stacked(answers)
    members = [
        stack((np.asarray(value) for value in values), None)
        for values in zip(*(block[1:] for block in partition), strict=True)
    ]
    if len(members[0].reshape(len(members[0]), -1).T) != len(
        predicted.reshape(len(predicted), -1).T
    ):
        raise InvalidArgumentError("y has another number of outputs than it had during fit")
    return tally(members[0], predicted, members[1] if weighted else None)
