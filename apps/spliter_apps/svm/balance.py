"""Representativeness of a partition: uncertainty of its margins, and samples of missing classes.

An SVM trained on few items has approximately the margins of one trained on all; the error shrinks
with the number of items. Each partition therefore also keeps items just outside the margin
(:func:`margin_error`), and later iterations find hardly any missing item.

A partition finds its support vectors by comparing classes. If blocks are sorted by class, a
partition may contain one class only, or very few items of another, and its margins are then far
from those of all data. Such partitions train with a *sample* of all data, a few items of each
class, weighted to make up for the missing ones. Items of the sample are not part of the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from spliter_apps.svm.kernel import Rows

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

SAMPLE_ROWS = 2_048
"""Items in a sample of all data: training on half of it and testing with the rest takes 0.01 to
0.04 s, one SVC on 10,000 items 0.1 to 3 s."""

TOO_FEW = 0.75
"""A partition lacks a class if it has less than this share of the expected number of items ..."""

TOO_FEW_DEVIATIONS = 2.0
"""... and is this many standard deviations below it, as class shares of small partitions vary."""


MARGIN_ERROR = 25.0
"""Error of the margins, in units of the margin, times the square root of the number of training
items: measured such that the second iteration on overlapping classes finds less than a thousandth
of the items missing."""

MAX_MARGIN_ERROR = 0.5
"""Upper bound of the error for few items; beyond it most items would be kept."""

SAMPLE_MARGIN_ERROR = 1.0
"""Error of the margins if a sample replaces a missing class."""


def margin_error(nitems: int) -> float:
    """Return the expected error, in units of the margin, of the margins of so many items.

    Examples
    --------
    >>> margin_error(100), margin_error(10_000)
    (0.5, 0.25)
    """
    return float(min(MAX_MARGIN_ERROR, MARGIN_ERROR / np.sqrt(max(nitems, 1))))


def missing_counts(counts: Counts, totals: Counts) -> Floats | None:
    """Return how many items of each class a partition lacks to be representative.

    `totals` are the items of each class in all data, at least one each. ``None`` if the partition
    has about as many of each class as expected.

    Examples
    --------
    >>> missing_counts(np.array([50, 40]), np.array([500, 500]))
    >>> missing_counts(np.array([50, 0]), np.array([500, 250]))
    array([ 0., 25.])
    """
    size = counts.sum()
    shares = totals / totals.sum()
    expected = size * shares
    enough = np.minimum(TOO_FEW * expected, expected - TOO_FEW_DEVIATIONS * np.sqrt(expected))
    if np.all(counts >= enough):
        return None
    # The size of a representative partition with as much of the classes that are present here.
    whole = float(np.sum(counts / size * counts / shares))
    lacking: Floats = np.maximum(whole * shares - counts, 0.0)
    return lacking


def replacement_counts(totals: Counts) -> Counts:
    """Return the number of items of each class in a sample that replaces missing classes.

    The same number for each class, limited by the items there are.

    Examples
    --------
    >>> replacement_counts(np.array([8_000, 10]))
    array([1024,   10])
    """
    return np.minimum(max(SAMPLE_ROWS // len(totals), 1), totals)


def quotas(counts: Sequence[Counts], totals: Counts, wanted: Counts) -> list[Counts]:
    """Return how many items of each class each partition contributes to a sample.

    In proportion to the items of the partition, rounded up.

    Examples
    --------
    >>> quotas([np.array([6, 0]), np.array([2, 10])], np.array([8, 10]), np.array([4, 10]))
    [array([3, 0]), array([ 1, 10])]
    """
    return [-(-of_part * wanted // totals) for of_part in counts]


def sample(rows: Rows, quota: Counts) -> Rows:
    """Draw items of each class at regular intervals; as many as `quota` says, if there are."""
    taken = []
    for label, wanted in enumerate(quota.tolist()):
        (having,) = np.nonzero(rows.labels == label)
        steps = np.linspace(0, len(having) - 1, min(wanted, len(having)))
        taken.append(having[steps.astype(np.intp)])
    return rows.taken(np.sort(np.concatenate(taken)))


def replacements(drawn: Rows, rows: Rows, mass: Floats) -> Rows:
    """Return the items of a sample that replace the missing classes of a partition.

    They are those of its missing classes that it does not have, with weights whose sum in each
    class is `mass`, the number of items that it lacks.
    """
    others = drawn.taken(~np.isin(drawn.indexes, rows.indexes) & (mass[drawn.labels] > 0))
    own = np.ones(len(others)) if others.weights is None else others.weights
    present = np.bincount(others.labels, minlength=len(mass))
    factors = mass / np.maximum(present, 1)
    return replace(others, weights=own * factors[others.labels])
