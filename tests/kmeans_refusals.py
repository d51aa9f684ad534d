"""What k-means refuses, on any engine."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from spliter import AlignmentError, InvalidArgumentError, split
from spliter_apps.kmeans import KMeans
from tests.engine_collections import EngineCollections
from tests.kmeans_data import dataset


class KMeansRefusals(EngineCollections):
    """Subclasses say how a collection of the engine is made."""

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_points_that_are_not_finite(self, bad: float) -> None:
        points = dataset("iris").copy()
        kmeans = KMeans(3, random_state=0).fit(points)
        points[130, 2] = bad
        x = self.collection(points, [50, 70, 30])
        for first in ("k-means++", points[:3]):
            with pytest.raises(InvalidArgumentError, match=r"block \(2, ?0?\).*(NaN|infinity)"):
                KMeans(3, init=first).fit(x)
        with pytest.raises(InvalidArgumentError, match=r"NaN|infinity"):
            self.gathered(kmeans.predict(x))

    def test_blocks_of_one_axis(self) -> None:
        # A list of such blocks is, to scikit-learn, one array whose rows are not of one length.
        with pytest.raises(ValueError, match=r"2D array|inhomogeneous"):
            KMeans(2).fit(self.collection(np.arange(9.0), [4, 5]))

    def test_blocks_of_different_width(self) -> None:
        x = self.blocks([np.zeros((3, 2)), np.zeros((3, 1))])
        for first in ("k-means++", np.zeros((1, 2))):
            with pytest.raises(InvalidArgumentError, match="the same number of columns"):
                KMeans(1, init=first).fit(x)

    @pytest.mark.parametrize("rows", [[3, 0, 2], [0, 0]])
    def test_fewer_points_than_clusters(self, rows: list[int]) -> None:
        x = self.collection(np.arange(2.0 * sum(rows)).reshape(-1, 2), rows)
        message = f"n_samples={sum(rows)} should be >= n_clusters=6"
        for first in ("k-means++", np.arange(12.0).reshape(6, 2)):
            with pytest.raises(InvalidArgumentError, match=message):
                KMeans(6, init=first).fit(x)

    @pytest.mark.parametrize(
        ("value", "message"),
        [(-1.0, "negative"), (np.nan, "NaN"), (np.inf, "infinity")],
    )
    def test_weights_that_cannot_be_used(self, value: float, message: str) -> None:
        points, weights = dataset("iris"), np.ones(150)
        weights[60] = value
        x, w = self.collection(points, [50, 100]), self.collection(weights, [50, 100])
        with pytest.raises(InvalidArgumentError, match=message):
            KMeans(3).fit(x, sample_weight=w)

    def test_no_point_has_a_weight(self) -> None:
        x = self.collection(dataset("iris"), [50, 100])
        w = self.collection(np.zeros(150), [50, 100])
        for first in ("k-means++", dataset("iris")[::50]):
            with pytest.raises(InvalidArgumentError, match="at least one non-zero"):
                KMeans(3, init=first).fit(x, sample_weight=w)

    def test_fewer_points_with_a_weight_than_clusters(self) -> None:
        weights = np.zeros(150)
        weights[[3, 70]] = 1.0
        x, w = self.collection(dataset("iris"), [50, 100]), self.collection(weights, [50, 100])
        with pytest.raises(InvalidArgumentError, match="positive weight, got 2"):
            KMeans(3, init="random", random_state=0).fit(x, sample_weight=w)

    def test_weights_blocked_otherwise(self) -> None:
        x, w = self.collection(dataset("iris"), [50, 100]), np.ones(150)
        with pytest.raises(AlignmentError):
            KMeans(3).fit(x, sample_weight=self.collection(w, [100, 50]))
        with pytest.raises(InvalidArgumentError, match=r"149 entries.*150 rows"):
            KMeans(3).fit(x, sample_weight=w[1:])
        with (
            split(x) as parts,
            pytest.raises(InvalidArgumentError, match="pass the Split of both"),
        ):
            KMeans(3).fit(parts, sample_weight=self.collection(w, [50, 100]))

    def test_other_columns_than_fitted(self) -> None:
        points = dataset("iris")
        kmeans = KMeans(3, random_state=0).fit(self.collection(points, [50, 100]))
        other = self.collection(points[:, :3], [50, 100])
        for use in (kmeans.predict, kmeans.transform):
            with pytest.raises(InvalidArgumentError, match="3 features, but KMeans is expecting 4"):
                self.gathered(use(other))
        with pytest.raises(InvalidArgumentError, match="3 features, but KMeans is expecting 4"):
            kmeans.score(other)

    def test_use_before_fit(self) -> None:
        x = self.collection(dataset("iris"), [50, 100])
        for use in (KMeans().predict, KMeans().transform, KMeans().score):
            with pytest.raises(NotFittedError):
                use(x)

    @pytest.mark.parametrize("shape", [(4, 4), (3, 5)])
    def test_first_centres_of_another_shape(self, shape: tuple[int, int]) -> None:
        x = self.collection(dataset("iris"), [50, 100])
        with pytest.raises(InvalidArgumentError, match="does not match the number of"):
            KMeans(3, init=np.ones(shape)).fit(x)
