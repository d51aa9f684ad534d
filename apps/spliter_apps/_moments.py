"""Count, mean and (co)variance, computed by part and merged without cancellation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class Moments:
    """Count, mean and variance of numbers, or of each column of an array, or covariance of columns.

    count: Number of values, or their total weight.
    mean (float, or ndarray of float64 of shape (n_columns,))
    variance (float, or ndarray of float64 of shape (n_columns,) or (n_columns, n_columns)): The
        population variance, as in ``numpy.var``, or the covariance matrix.
    """

    count: float
    mean: Any
    variance: Any

    def merged(self, other: Moments) -> Moments:
        """Return the moments of the combined data.

        Examples
        --------
        >>> both = Moments(2, 1.0, 1.0).merged(Moments(2, 3.0, 1.0))
        >>> both.count, both.mean, float(both.variance)
        (4, 2.0, 2.0)
        """
        if not self.count or not other.count:
            return self if self.count else other
        count = self.count + other.count
        mine, theirs = self.count / count, other.count / count
        difference = other.mean - self.mean
        with np.errstate(over="ignore"):  # the variance of values above 1e154 is infinite
            is_matrix = np.ndim(self.variance) == 2
            squares = np.outer(difference, difference) if is_matrix else np.square(difference)
            between = squares * mine * theirs
        variance = self.variance * mine + other.variance * theirs + between
        return Moments(count, self.mean + difference * theirs, variance)
