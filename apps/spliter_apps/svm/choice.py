"""Choose between a cascade and one SVC on all points.

Training an SVC evaluates the kernel about once for each pair of a point and a support vector. A
cascade needs fewer evaluations if few points reach its last merge: the support vectors and the
points close to the margins. If the classes overlap, nearly all points do, and one SVC is faster
than the partitions and the last merge together. A sample of the points predicts how many
evaluations a cascade saves.
"""

from __future__ import annotations

import numpy as np
from sklearn.svm import SVC

from spliter_apps.svm.balance import SAMPLE_ROWS, Counts, margin_error
from spliter_apps.svm.kernel import Rows, support, train
from spliter_apps.svm.margins import near_margin

BREAK_EVEN = 0.8
"""Share of the points kept for the last merge at which a cascade evaluates the kernel as often as
one SVC: the previous steps take the other 0.2. On 20,000 points in two partitions a cascade takes
1.2 times as long as one SVC at a share of 0.88, 1.1 times at 0.79, 0.9 times at 0.78, and 0.7 times
at 0.47."""

MIN_EVALUATIONS_SAVED = 10_000_000
"""Minimum number of saved kernel evaluations for which a cascade is trained. Its additional tasks
take 0.05 to 0.15 s on a Dask cluster of two workers; on 14 sets of 8,000 to 24,000 points in two
partitions, each predicted evaluation saves 3 to 70 ns of one thread, median 7."""


def sample_counts(totals: Counts) -> Counts:
    """Return the number of items of each class in the sample.

    In proportion to `totals`, but at least two of each class (if there are two).

    Examples
    --------
    >>> sample_counts(np.array([30_000, 10_000, 1]))
    array([1536,  512,    1])
    """
    proportional = -(-totals * SAMPLE_ROWS // totals.sum())
    counts: Counts = np.minimum(np.maximum(proportional, 2), totals)
    return counts


def evaluations_saved(drawn: Rows, svc: SVC, nitems: int) -> float:
    """Estimate how many kernel evaluations a cascade saves, compared with one SVC on all points.

    `nitems` is the number of items in all data. Negative if one SVC evaluates the kernel less
    often; infinite if the sample contains a single class.

    Notes
    -----
    An SVC trained on the first half of the sample gives the share of support vectors. The share of
    points that a cascade keeps is estimated on the second half: those inside the margins of this
    SVC or within :func:`~spliter_apps.svm.balance.margin_error` of half the data outside them.

    Examples
    --------
    >>> points = np.linspace(-1.0, 1.0, 200)[:, None]
    >>> rows = Rows(points, (points[:, 0] > 0).astype(np.intp), None, np.arange(200))
    >>> saved = evaluations_saved(rows, SVC(kernel="linear", gamma=1.0), 1_000_000)
    >>> bool(saved > MIN_EVALUATIONS_SAVED)
    True
    """
    # Every class with two items is in both halves.
    by_class = np.argsort(drawn.labels, kind="stable")
    trained, held = drawn.taken(by_class[::2]), drawn.taken(by_class[1::2])
    found = train(trained, svc)
    if found is None or found.model is None:
        return np.inf  # no estimate; a cascade, as one SVC needs the memory for all points
    vectors = len(support(found)) / len(trained)
    held = held.taken(np.isin(held.labels, found.model.classes_))
    near = near_margin(
        found.model, support(found).points, held.points, held.labels, margin_error(nitems // 2)
    )
    return float(nitems * nitems * vectors * (BREAK_EVEN - near.mean()))
