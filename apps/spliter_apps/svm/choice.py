"""Choose between a cascade and one SVC on all points.

A cascade is faster where few points get as far as its last merge: the support vectors and what is
close to the margins. Where the classes overlap, nearly all points do, and one SVC takes less time
than the parts and the last merge together. A sample of the points shows which of the two it is.
"""

from __future__ import annotations

import numpy as np
from sklearn.svm import SVC

from spliter_apps.svm.balance import Counts, doubt
from spliter_apps.svm.kernel import Rows, support, train
from spliter_apps.svm.margins import near_margin

ONE_SVC_ROWS = 8_192
"""Items up to which one SVC is trained. On 2,000 and 5,000 points of 20 columns the steps of a
cascade in two or eight parts take 0.8 to 2.2 times as long, median 1.3; a cluster adds its round
trips."""

SAMPLE_ROWS = 2_048
"""Items in the sample: half to train on, half to test with. That takes 0.01 to 0.03 s; one SVC on
10,000 items takes 0.1 to 3 s."""

MOST_KEPT = 0.8
"""Share of the sample close to the margins above which one SVC is trained. On 20,000 points in two
parts a cascade takes 1.2 times as long as one SVC where the share is 0.88, 1.1 times at 0.79, 0.9
times at 0.78, and 0.7 times at 0.47."""


def sample_counts(totals: Counts) -> Counts:
    """Return how many items of each class the sample has.

    Parameters
    ----------
    totals : ndarray of int64, shape (n_classes,)
        Items of each class in all data.

    Returns
    -------
    ndarray of int64, shape (n_classes,)
        In proportion to `totals`, at least two of each class where there are as many.

    Examples
    --------
    >>> sample_counts(np.array([30_000, 10_000, 1]))
    array([1536,  512,    1])
    """
    proportional = -(-totals * SAMPLE_ROWS // totals.sum())
    counts: Counts = np.minimum(np.maximum(proportional, 2), totals)
    return counts


def kept_share(drawn: Rows, svc: SVC, nitems: int) -> float:
    """Estimate which share of the points a cascade would keep for its last merge.

    Parameters
    ----------
    drawn : Rows
        Sample of all data.
    svc : SVC
        Not trained, with a number for gamma and class weights by class number.
    nitems : int
        Number of items in all data.

    Returns
    -------
    float
        Share of the second half of the sample that is inside the margins of an SVC trained on
        the first half, or as close to them as a cascade doubts the margins of half the data.

    Examples
    --------
    >>> points = np.linspace(-1.0, 1.0, 200)[:, None]
    >>> rows = Rows(points, (points[:, 0] > 0).astype(np.intp), None, np.arange(200))
    >>> kept_share(rows, SVC(kernel="linear", gamma=1.0), 1_000_000) < 0.5
    True
    """
    # Every class with two items gets into both halves.
    by_class = np.argsort(drawn.labels, kind="stable")
    trained, held = drawn.taken(by_class[::2]), drawn.taken(by_class[1::2])
    found = train(trained, svc)
    if found is None or found.model is None:
        return 0.0
    held = held.taken(np.isin(held.labels, found.model.classes_))
    near = near_margin(
        found.model, support(found).points, held.points, held.labels, doubt(nitems // 2)
    )
    return float(near.mean())
