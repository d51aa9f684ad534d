"""Open the input given on the command line: points, and labels for apps that need them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spliter_experiments.compare.data.columns import Wanted
from spliter_experiments.compare.data.readers import open_labels, open_source
from spliter_experiments.compare.data.sources import (
    Dataset,
    Floats,
    GeneratedBlobs,
    GeneratedPoints,
    Points,
    Shuffled,
)
from spliter_experiments.harness.errors import InputError, OptionError

MOST_CLASSES = 100
"""A label column with more distinct values is taken for a measurement and rejected."""


@dataclass(frozen=True)
class InputChoice:
    """Requested input data: options of ``spliter compare``, or the shape of generated points."""

    source: str | None
    columns: str | None
    rows: int
    dims: int
    seed: int

    def __post_init__(self) -> None:
        if self.source is None and self.columns is not None:
            raise OptionError("--columns goes with --input; use --dims for generated points")


def open_points(choice: InputChoice, most: int | None = None, extra: int = 0) -> Points:
    """Open points: at least one row and one column.

    If the user selects no columns, there are `most` at most. `extra` more points are generated, for
    the app to hold out.
    """
    if choice.source is None:
        return GeneratedPoints(choice.rows + extra, choice.dims, choice.seed)
    return _not_empty(open_source(choice.source, Wanted(choice.columns, most)))


def open_labelled(
    choice: InputChoice, label: str | None, extra: int = 0
) -> tuple[Points, Points, tuple[float, ...]]:
    """Open points and their classes.

    Returns the points, a column of their class values, and the distinct values. Rows of an input
    are shuffled: many inputs are sorted by class, and training on blocks of one class is a
    different problem. `extra` more points are generated, for the app to hold out.
    """
    if choice.source is None:
        if label is not None:
            raise OptionError("--label goes with --input; generated points have classes")
        blobs = GeneratedBlobs(choice.rows + extra, choice.dims, choice.seed)
        return blobs, blobs.classes(), (0.0, 1.0)
    points = _not_empty(open_source(choice.source, Wanted(choice.columns, without=label)))
    if label is None:
        raise OptionError(
            f"--label NAME has to say which column of {points.origin} holds the classes"
        )
    column = open_labels(choice.source, label)
    return Shuffled(points, choice.seed), Shuffled(column, choice.seed), _classes(column)


def _not_empty(points: Points) -> Points:
    if points.rows < 1:
        raise InputError(f"{points.origin} holds no rows")
    return points


def _classes(column: Points) -> tuple[float, ...]:
    (name,) = column.columns.names
    values = np.unique(column.read(0, column.rows))
    if not np.isfinite(values).all():
        raise InputError(f"{column.origin}: missing or infinite values in {name}, the label")
    if not 2 <= len(values) <= MOST_CLASSES:
        raise InputError(
            f"{column.origin}: {name}, the label, has {len(values)} different values; there have "
            f"to be 2 classes, {MOST_CLASSES} at most"
        )
    return tuple(values.tolist())


def read_held_out(dataset: Dataset) -> Floats:
    assert dataset.held_out is not None
    points = dataset.held_out.read(0, dataset.held_out.rows)
    if not np.isfinite(points).all():
        raise InputError(f"{dataset.held_out.origin}: missing or infinite values in rows held out")
    return points
