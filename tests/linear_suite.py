"""What PCA and linear regression must do on every engine; each engine's module subclasses it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import sklearn.decomposition
import sklearn.linear_model

from spliter import InvalidArgumentError, split
from spliter_apps.linear import PCA, LinearRegression, Ridge
from tests.engine_collections import EngineCollections, cut

N = 120
BLOCKINGS = ([N], [50, 0, 70], [1] * N)
TOLERANCE = 1e-10
COMPONENTS = (
    "components_",
    "explained_variance_",
    "explained_variance_ratio_",
    "singular_values_",
    "mean_",
    "noise_variance_",
)

REGRESSIONS = [
    (LinearRegression(), sklearn.linear_model.LinearRegression()),
    (
        LinearRegression(fit_intercept=False),
        sklearn.linear_model.LinearRegression(fit_intercept=False),
    ),
    (Ridge(), sklearn.linear_model.Ridge(solver="cholesky")),
    (
        Ridge(alpha=3.5, fit_intercept=False),
        sklearn.linear_model.Ridge(alpha=3.5, fit_intercept=False, solver="cholesky"),
    ),
]


def rows(offset: float = 5.0) -> tuple[Any, Any, Any]:
    """Return points far from zero, targets and weights."""
    random = np.random.default_rng(0)
    points = random.normal(size=(N, 5)) @ random.normal(size=(5, 5)) + offset
    targets = points @ random.normal(size=(5, 2)) + random.normal(size=(N, 2)) + 3
    return points, targets, random.integers(0, 4, N).astype(float)


def assert_close(found: Any, expected: Any, tolerance: float = TOLERANCE) -> None:
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def assert_same_pca(ours: Any, theirs: Any) -> None:
    for name in COMPONENTS:
        assert_close(getattr(ours, name), getattr(theirs, name))
    assert (ours.n_components_, ours.n_samples_) == (theirs.n_components_, theirs.n_samples_)


def assert_same_line(ours: Any, theirs: Any) -> None:
    for name in ("coef_", "intercept_"):
        found, expected = getattr(ours, name), getattr(theirs, name)
        assert np.shape(found) == np.shape(expected)
        assert_close(found, expected)


class LinearTests(EngineCollections):
    """Subclasses say how a collection of the engine is made."""

    @pytest.mark.parametrize("heights", BLOCKINGS)
    def test_pca(self, heights: Sequence[int]) -> None:
        points, _, _ = rows()
        x = self.collection(points, heights)
        for options in ({}, {"n_components": 2, "whiten": True}, {"n_components": 0.9}):
            ours = PCA(**options).fit(x)
            theirs = sklearn.decomposition.PCA(svd_solver="covariance_eigh", **options).fit(points)
            assert_same_pca(ours, theirs)
            assert_close(self.gathered(ours.transform(x)), theirs.transform(points))
            assert_close(ours.transform(points), theirs.transform(points))

    @pytest.mark.parametrize("heights", BLOCKINGS)
    @pytest.mark.parametrize(("ours", "theirs"), REGRESSIONS)
    def test_regression(self, ours: Any, theirs: Any, heights: Sequence[int]) -> None:
        points, targets, weights = rows()
        x, w = self.collection(points, heights), self.collection(weights, heights)
        for target in (targets[:, 0], targets):
            y = self.collection(target, heights)
            assert_same_line(ours.fit(x, y), theirs.fit(points, target))
            assert_same_line(
                ours.fit(x, y, sample_weight=w), theirs.fit(points, target, sample_weight=weights)
            )
            assert_close(self.gathered(ours.predict(x)), theirs.predict(points))
            assert_close(ours.predict(points), theirs.predict(points))
            assert_close(ours.score(x, y), theirs.score(points, target))
            assert_close(ours.score(x, y, w), theirs.score(points, target, weights))

    def test_targets_in_memory_and_a_split(self) -> None:
        points, targets, weights = rows()
        x, y = (self.collection(it, [50, 70]) for it in (points, targets))
        expected = sklearn.linear_model.Ridge().fit(points, targets, weights)
        assert_same_line(Ridge().fit(x, targets, weights), expected)
        with split(x, y) as parts:
            assert_same_line(
                Ridge().fit(parts, None), sklearn.linear_model.Ridge().fit(points, targets)
            )

    def test_sparse_blocks(self) -> None:
        points, targets, _ = rows(0.0)
        points[np.abs(points) < 1] = 0
        blocks = [scipy.sparse.csr_array(block) for block in cut(points, [40, 60, 20])]
        x, y = (
            self.blocks([*blocks[:2], blocks[2].toarray()]),
            self.collection(targets, [40, 60, 20]),
        )
        theirs = sklearn.decomposition.PCA(svd_solver="covariance_eigh").fit(points)
        assert_same_pca(PCA().fit(x), theirs)
        line = sklearn.linear_model.LinearRegression().fit(points, targets)
        assert_same_line(LinearRegression().fit(x, y), line)

    def test_frames(self) -> None:
        points, targets, _ = rows()
        frame = pd.DataFrame(points, columns=list("abcde"))
        x, y = self.frames(frame, [60, 60]), self.collection(targets, [60, 60])
        model = LinearRegression().fit(x, y)
        assert list(model.feature_names_in_) == list("abcde")
        assert_same_line(model, sklearn.linear_model.LinearRegression().fit(frame, targets))
        pca = PCA().fit(x)
        assert_close(pca.components_, sklearn.decomposition.PCA().fit(frame).components_)
        other = self.frames(frame[list("edcba")], [60, 60])
        for feature in (model.predict, pca.transform):
            with pytest.raises(InvalidArgumentError, match="feature names"):
                self.gathered(feature(other))
