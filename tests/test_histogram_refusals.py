"""Blocks, weights and edges that a histogram refuses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import sparse

from spliter import AlignmentError, InvalidArgumentError
from spliter_apps.histogram.blocks import real_array
from spliter_apps.histogram.kernel import count_points
from tests.test_histogram_kernel import Array

BLOCKS_REFUSED: list[tuple[Any, str]] = [
    (np.zeros((3, 2), complex), "complex128"),
    (np.zeros((3, 2), object), "dtype object"),
    (np.full((3, 2), "a"), "<U1"),
    (np.zeros((3, 2), "M8[s]"), "datetime64"),
    (np.zeros((3, 2), [("a", "f8")]), "real numbers"),
    (np.ma.masked_equal(np.zeros((3, 2)), 0), "filled"),
    (np.zeros((3, 3)), r"as many columns as range has pairs, or bins has members \(2\), got 3"),
    (np.zeros(3), r"as range has pairs, or bins has members \(2\), got 1"),
    (np.zeros((3, 2, 1)), r"shape \(n, ndim\)"),
    (np.zeros(()), "has no rows"),
    ((np.zeros(3), np.zeros(4)), r"\[3, 4\]"),
    ((), "has no rows"),
    ([[1.0, 2.0]], "got a list"),
    (3.0, "of type float has no rows"),
    (scipy.sparse.csr_matrix((3, 2)), "dense"),
    (sparse.COO.from_numpy(np.eye(2)), "dense"),
    (
        pd.DataFrame({"a": [1.0], "day": pd.to_datetime(["2020-01-01"])}),
        "column 1 has dtype datetime",
    ),
    (pd.DataFrame({"a": [1.0], "name": ["x"]}), "column 'name'"),
]


@pytest.mark.parametrize(("block", "message"), BLOCKS_REFUSED)
def test_blocks_that_are_refused(block: Any, message: str) -> None:
    with pytest.raises((InvalidArgumentError, AlignmentError), match=message):
        count_points([block], [np.array([0.0, 1.0])] * 2)


def test_a_mask_that_masks_nothing_is_no_matter() -> None:
    block = np.ma.masked_invalid(np.array([[0.5], [0.7]]))
    assert count_points([block], [np.array([0.0, 1.0])]).tolist() == [2.0]
    assert type(real_array(block, "it")) is np.ndarray


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(2), r"\[3, 2\]"),
        (np.ones((3, 1)), r"shape \(n,\)"),
        (np.ones(3, complex), "complex128"),
        (np.ones(3, np.longdouble), "cannot be converted to float64"),
        (np.ma.masked_equal(np.ones(3), 1), "masked"),
        ([1.0, 1.0, 1.0], "got a list"),
    ],
)
def test_weights_that_are_refused(weights: Any, message: str) -> None:
    with pytest.raises((InvalidArgumentError, AlignmentError), match=message):
        count_points([(np.zeros((3, 1)), weights)], [np.array([0.0, 1.0])], weighted=True)


def test_weights_of_a_series() -> None:
    block = pd.DataFrame({"a": [0.5, 0.7]}), pd.Series([1, 2], dtype="Int64")
    assert count_points([block], [np.array([0.0, 1.0])], weighted=True).tolist() == [3.0]


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ((), "at least one column"),
        ((np.array([0.0, np.nan]),), "NaN"),
        ((np.array([1.0, 0.0]),), "monotonically increasing"),
        ((np.array([]),), "at least one real number"),
        ((np.zeros((2, 2)),), "1-D"),
        ((np.array(["a", "b"]),), "dtype <U1"),
        ((np.arange(2**13),) * 5, "an array cannot hold"),
    ],
)
def test_edges_that_are_refused(edges: Sequence[Array], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        count_points([], edges)
