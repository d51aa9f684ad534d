"""How far a part of the data can be trusted, and what it is told of classes that it lacks.

The margins of a machine trained on few items are about those of a machine trained on all, the
nearer the more items there are. So items somewhat outside are kept along with the support
vectors (:func:`doubt`), and hardly any has to be looked for a second time.

A part decides which of its items may be support vectors, and can do so only against items of
the other classes. Where blocks are sorted by class, a partition may have one class alone, or
next to nothing of another one: what it then finds has little to do with the whole. Such parts
get a *sample* of all data, a few items of each class, whose weights make up for what they
lack; so the machine they train has about the margins of the whole. Items of the sample are
not passed on.
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
"""A part lacks a class if it has less than this of what is to be expected by its size ..."""

TOO_FEW_DEVIATIONS = 2.0
"""... and so many standard deviations less, as small parts of mixed data have any shares."""


DOUBT = 25.0
"""By how many margins the margins are off, times the root of the number of items trained on:
measured such that a second look at overlapping classes finds less than a thousandth missing."""

MOST_DOUBT = 0.5
"""However few the items are; more of them would be kept than left."""

DOUBT_OF_SAMPLES = 1.0
"""The same where a sample stands in for a class."""


def doubt(nitems: int) -> float:
    """Return how far the margins of a representative part may be from those of all data.

    Parameters
    ----------
    nitems : int
        Items in the part.

    Returns
    -------
    float
        In units of the margin.

    Examples
    --------
    >>> doubt(100), doubt(10_000)
    (0.5, 0.25)
    """
    return float(min(MOST_DOUBT, DOUBT / np.sqrt(max(nitems, 1))))


def missing_mass(counts: Counts, totals: Counts) -> Floats | None:
    """Return what a part lacks of each class to be like the whole.

    Parameters
    ----------
    counts : ndarray of int64, shape (n_classes,)
        Items of each class in the part.
    totals : ndarray of int64, shape (n_classes,)
        Items of each class in all data, at least one each.

    Returns
    -------
    ndarray of float64, shape (n_classes,), or None
        By how many items of each class the part falls short of a representative one of its
        kind; ``None`` if it has about what is to be expected of each class.

    Examples
    --------
    >>> missing_mass(np.array([50, 40]), np.array([500, 500]))
    >>> missing_mass(np.array([50, 0]), np.array([500, 250]))
    array([ 0., 25.])
    """
    size = counts.sum()
    shares = totals / totals.sum()
    expected = size * shares
    enough = np.minimum(TOO_FEW * expected, expected - TOO_FEW_DEVIATIONS * np.sqrt(expected))
    if np.all(counts >= enough):
        return None
    # The size of a representative part with as much of the classes that this one is about.
    whole = float(np.sum(counts / size * counts / shares))
    lacking: Floats = np.maximum(whole * shares - counts, 0.0)
    return lacking


def stand_in_counts(totals: Counts) -> Counts:
    """Return how many items of each class a sample has that stands in for lacking classes.

    Parameters
    ----------
    totals : ndarray of int64, shape (n_classes,)
        Items of each class in all data.

    Returns
    -------
    ndarray of int64, shape (n_classes,)
        The same number of each class, where there are as many.

    Examples
    --------
    >>> stand_in_counts(np.array([8_000, 10]))
    array([1024,   10])
    """
    return np.minimum(max(SAMPLE_ROWS // len(totals), 1), totals)


def quotas(counts: Sequence[Counts], totals: Counts, wanted: Counts) -> list[Counts]:
    """Return how many items of each class each part contributes to a sample.

    Parameters
    ----------
    counts : sequence of ndarray of int64, shape (n_classes,)
        Items of each class in each part.
    totals : ndarray of int64, shape (n_classes,)
        Items of each class in all data.
    wanted : ndarray of int64, shape (n_classes,)
        Items of each class in the sample.

    Returns
    -------
    list of ndarray of int64, shape (n_classes,)
        In proportion to what the part has, rounded up.

    Examples
    --------
    >>> quotas([np.array([6, 0]), np.array([2, 10])], np.array([8, 10]), np.array([4, 10]))
    [array([3, 0]), array([ 1, 10])]
    """
    return [-(-of_part * wanted // totals) for of_part in counts]


def sample(rows: Rows, quota: Counts) -> Rows:
    """Take items of each class at even distances.

    Parameters
    ----------
    rows : Rows
        Items of one part.
    quota : ndarray of int64, shape (n_classes,)
        How many of each class.

    Returns
    -------
    Rows
        The sample.
    """
    taken = []
    for label, wanted in enumerate(quota.tolist()):
        (having,) = np.nonzero(rows.labels == label)
        steps = np.linspace(0, len(having) - 1, min(wanted, len(having)))
        taken.append(having[steps.astype(np.intp)])
    return rows.taken(np.sort(np.concatenate(taken)))


def standing_in(drawn: Rows, rows: Rows, mass: Floats) -> Rows:
    """Return the items of a sample that stand in for what a part lacks.

    Parameters
    ----------
    drawn : Rows
        A sample of all data.
    rows : Rows
        Items of the part.
    mass : ndarray of float64, shape (n_classes,)
        What it lacks of each class.

    Returns
    -------
    Rows
        Items of the sample that the part does not have, of the classes that it lacks; the
        weights of each class in proportion to their own, with as great a mean as it takes.
    """
    others = drawn.taken(~np.isin(drawn.indexes, rows.indexes) & (mass[drawn.labels] > 0))
    own = np.ones(len(others)) if others.weights is None else others.weights
    present = np.bincount(others.labels, minlength=len(mass))
    factors = mass / np.maximum(present, 1)
    return replace(others, weights=own * factors[others.labels])
