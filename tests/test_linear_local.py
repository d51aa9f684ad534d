"""PCA and linear regression in this process: degenerate data, options, and bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sklearn.datasets
import sklearn.decomposition
import sklearn.linear_model
from sklearn.exceptions import NotFittedError

from spliter import InvalidArgumentError, split
from spliter_apps._moments import Moments
from spliter_apps.linear import PCA, LinearRegression, Ridge
from spliter_apps.linear.moments import moments_of
from tests.engine_collections import ListsOfBlocks, cut
from tests.linear_suite import LinearTests, N, assert_close, assert_same_line, assert_same_pca, rows


class TestListsOfBlocks(ListsOfBlocks, LinearTests):
    """Lists of arrays."""


@pytest.mark.parametrize("name", ["iris", "diabetes", "breast_cancer", "wine"])
def test_datasets_of_scikit_learn(name: str) -> None:
    points, target = getattr(sklearn.datasets, f"load_{name}")(return_X_y=True)
    blocks, targets = np.array_split(points, 7), np.array_split(target, 7)
    ours = PCA(n_components=3).fit(blocks)
    theirs = sklearn.decomposition.PCA(n_components=3, svd_solver="full").fit(points)
    assert_close(ours.components_, theirs.components_, 1e-9)
    assert_close(ours.explained_variance_ratio_, theirs.explained_variance_ratio_)
    expected = sklearn.linear_model.Ridge(solver="cholesky").fit(points, target)
    assert_close(Ridge().fit(blocks, targets).coef_, expected.coef_, 1e-9)


def test_moments_of_parts_are_those_of_the_whole() -> None:
    points, targets, weights = rows(1e6)
    total = Moments(0, np.zeros(1), np.zeros((1, 1)))
    for part in cut(np.arange(N), [7, 0, 13, 100]):
        total = total.merged(moments_of(points[part], targets[part], weights[part]))
    columns = np.hstack([points, targets])
    assert total.count == weights.sum()
    assert_close(total.mean, np.average(columns, axis=0, weights=weights))
    assert_close(total.variance, np.cov(columns.T, aweights=weights, bias=True), 1e-8)


def test_dependent_columns() -> None:
    points, targets, _ = rows()
    points = np.hstack([points, points[:, :1] + points[:, 1:2], np.ones((N, 1))])
    blocks, y = cut(points, [70, 50]), cut(targets, [70, 50])
    expected = sklearn.linear_model.LinearRegression().fit(points, targets)
    model = LinearRegression().fit(blocks, y)
    assert_same_line(model, expected)
    assert model.rank_ == expected.rank_ == 5
    assert_close(model.singular_[:5], expected.singular_[:5])
    ridge = Ridge(alpha=0.0).fit(blocks, y)
    assert_close(ridge.predict(points), expected.predict(points), 1e-8)


def test_fewer_rows_than_columns() -> None:
    points, targets, _ = rows()
    expected = sklearn.linear_model.LinearRegression().fit(points[:3], targets[:3])
    assert_same_line(
        LinearRegression().fit(cut(points[:3], [1, 2]), cut(targets[:3], [1, 2])), expected
    )
    assert PCA().fit([points[:3]]).n_components_ == 3


def test_float32() -> None:
    points, targets, _ = (it.astype(np.float32) for it in rows())
    pca, model = PCA().fit([points]), Ridge().fit([points], [targets])
    assert pca.components_.dtype == pca.transform([points])[0].dtype == np.float32
    assert model.coef_.dtype == model.predict([points])[0].dtype == np.float32
    assert_close(model.coef_, sklearn.linear_model.Ridge().fit(points, targets).coef_, 1e-4)


@pytest.mark.parametrize("wanted", [None, 1, 0, 0.5, 0.999, "mle"])
def test_numbers_of_components(wanted: Any) -> None:
    points = sklearn.datasets.load_iris().data
    theirs = sklearn.decomposition.PCA(wanted, svd_solver="covariance_eigh").fit(points)
    ours = PCA(wanted).fit(np.array_split(points, 4))
    assert_same_pca(ours, theirs)
    if wanted:
        assert_close(
            ours.inverse_transform(ours.transform(points)),
            theirs.inverse_transform(theirs.transform(points)),
        )
        assert_close(ours.get_covariance(), theirs.get_covariance())


def test_a_penalty_for_each_target() -> None:
    points, targets, _ = rows()
    expected = sklearn.linear_model.Ridge(alpha=[0.5, 4.0]).fit(points, targets)
    assert_same_line(Ridge(alpha=[0.5, 4.0]).fit([points], [targets]), expected)


# --- bad input --------------------------------------------------------------------------------

X, Y, W = rows()


@pytest.mark.parametrize(
    ("model", "arguments", "message"),
    [
        (PCA(svd_solver="arpack"), ([X],), "svd_solver must be"),
        (PCA(n_components=9), ([X],), "between 0 and"),
        (PCA(n_components="mle"), ([X[:3]],), "as many points"),
        (PCA(), ([X[:1]],), "n_samples=1"),
        (PCA(), ([X[:0]],), "0 sample"),
        (PCA(), ([X, X[:, :3]],), "same number of columns"),
        (PCA(), ([X, np.ma.masked_greater(X, 5)],), "mask"),
        (PCA(), ([np.full((3, 3), np.nan)],), "NaN"),
        (PCA(), ([X * 1j],), "omplex"),
        (LinearRegression(positive=True), ([X], [Y]), "positive"),
        (LinearRegression(), ([X], None), r"split\(X, y\)"),
        (LinearRegression(), ([X], Y[:5]), "5 entries"),
        (LinearRegression(), ([X], [Y.astype(str)]), "numbers"),
        (LinearRegression(), ([X, X], [Y, Y[:, :1]]), "same"),
        (LinearRegression(), ([X], [np.full(N, np.nan)]), "NaN"),
        (LinearRegression(), ([X], [Y], [-W]), "not be negative"),
        (LinearRegression(), ([X], [Y], [W * 0]), "non-zero"),
        (Ridge(solver="sag"), ([X], [Y]), "solver must be"),
        (Ridge(alpha=[1.0, 2.0, 3.0]), ([X], [Y]), "penalties"),
        (Ridge(alpha=[-1.0, 2.0]), ([X], [Y]), "alpha must be"),
    ],
)
def test_refused(model: Any, arguments: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        model.fit(*arguments)


def test_refused_predictions() -> None:
    model, pca = Ridge().fit([X], [Y]), PCA().fit([X])
    for feature in (model.predict, pca.transform):
        with pytest.raises(InvalidArgumentError, match="3 features"):
            feature([X[:, :3]])
    with pytest.raises(InvalidArgumentError, match="outputs"):
        model.score([X], [Y[:, 0]])
    with pytest.raises(NotFittedError):
        PCA().transform([X])
    with pytest.raises(InvalidArgumentError, match=r"split\(X\)"):
        PCA().fit(split([X], [Y]))
