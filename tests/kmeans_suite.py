"""What k-means must do on every engine; each engine's test module subclasses it."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import sklearn.cluster
from sklearn.exceptions import ConvergenceWarning

from spliter import InvalidArgumentError, Partition, gather, split
from spliter_apps import _results
from spliter_apps.kmeans import KMeans, lloyd
from spliter_apps.kmeans import points as kmeans_points
from tests.engine_collections import cut, record_closed
from tests.kmeans_data import DATASETS, NBLOCKS, Array, K, assert_same, dataset, heights, start
from tests.kmeans_refusals import KMeansRefusals


class KMeansTests(KMeansRefusals):
    """Subclasses say how a collection of the engine is made."""

    # --- the same as scikit-learn -----------------------------------------------------------

    @pytest.mark.parametrize("n_blocks", NBLOCKS)
    @pytest.mark.parametrize("name", DATASETS)
    def test_same_as_scikit_learn(self, name: str, n_blocks: int) -> None:
        points = dataset(name)
        init = start(points)
        x = self.collection(points, heights(len(points), n_blocks))
        ours = KMeans(K, init=init).fit(x)
        theirs = sklearn.cluster.KMeans(K, init=init).fit(points)
        assert_same(ours, theirs, self.gathered(ours.labels_))
        np.testing.assert_array_equal(self.gathered(ours.predict(x)), theirs.labels_)
        np.testing.assert_allclose(
            self.gathered(ours.transform(x)), theirs.transform(points), rtol=1e-6, atol=1e-6
        )
        assert ours.score(x) == pytest.approx(theirs.score(points), rel=1e-6)

    @pytest.mark.parametrize("n_blocks", [7, 200])
    @pytest.mark.parametrize(("init", "n_init"), [("k-means++", 1), ("random", 3)])
    def test_same_draws_as_scikit_learn(self, init: str, n_init: int, n_blocks: int) -> None:
        points = dataset("blobs")
        weights = np.random.default_rng(3).random(len(points))
        weights[::5] = 0.0
        rows = heights(len(points), n_blocks)
        settings: dict[str, Any] = {"init": init, "n_init": n_init, "random_state": 4}
        ours = KMeans(K, **settings).fit(self.collection(points, rows))
        theirs = sklearn.cluster.KMeans(K, **settings).fit(points)
        assert_same(ours, theirs, self.gathered(ours.labels_))
        both = [self.collection(points, rows), self.collection(weights, rows)]
        ours = KMeans(K, **settings).fit(both[0], sample_weight=both[1])
        theirs = sklearn.cluster.KMeans(K, **settings).fit(points, sample_weight=weights)
        assert_same(ours, theirs, self.gathered(ours.labels_))

    @pytest.mark.parametrize("settings", [{"tol": 0}, {"max_iter": 2}, {"n_clusters": 1}])
    def test_when_iteration_ends(self, settings: dict[str, Any]) -> None:
        points = dataset("iris")
        settings = {"n_clusters": K, "n_init": 1} | settings
        settings["init"] = start(points, settings["n_clusters"], seed=1)
        ours = KMeans(**settings).fit(self.collection(points, heights(len(points), 7)))
        theirs = sklearn.cluster.KMeans(**settings).fit(points)
        assert_same(ours, theirs, self.gathered(ours.labels_))

    def test_weights(self) -> None:
        points = dataset("iris")
        weights = np.random.default_rng(2).integers(0, 4, len(points))
        rows, init = heights(len(points), 7), start(points)
        x, w = self.collection(points, rows), self.collection(weights, rows)
        theirs = sklearn.cluster.KMeans(K, init=init).fit(points, sample_weight=weights)
        ours = KMeans(K, init=init).fit(x, sample_weight=w)
        assert_same(ours, theirs, self.gathered(ours.labels_))
        with split(x, w) as parts:
            again = KMeans(K, init=init).fit(parts)
            assert_same(again, theirs, self.gathered(again.labels_))
            expected = theirs.score(points, sample_weight=weights)
            assert ours.score(parts) == pytest.approx(expected, rel=1e-6)
            np.testing.assert_array_equal(self.gathered(ours.predict(parts)), theirs.labels_)
        assert ours.score(x, sample_weight=w) == pytest.approx(expected, rel=1e-6)
        for in_memory in (weights, weights.tolist(), pd.Series(weights)):
            ours = KMeans(K, init=init).fit(x, sample_weight=in_memory)
            assert_same(ours, theirs, self.gathered(ours.labels_))
            assert ours.score(x, sample_weight=in_memory) == pytest.approx(expected, rel=1e-6)

    def test_parameters_of_scikit_learn(self) -> None:
        points = dataset("iris")
        settings: dict[str, Any] = {"init": start(points, 3), "algorithm": "lloyd", "copy_x": False}
        x = self.collection(points, heights(len(points), 7))
        ours = KMeans(3, **settings).fit(x)
        theirs = sklearn.cluster.KMeans(3, **settings).fit(points.copy())
        assert_same(ours, theirs, self.gathered(ours.labels_))
        assert KMeans(3, **settings).fit(points).inertia_ == pytest.approx(theirs.inertia_)
        with pytest.raises(InvalidArgumentError, match="must be \"lloyd\", got 'elkan'"):
            KMeans(3, algorithm="elkan").fit(x)  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("name", "dtype", "rtol"), [("blobs", np.float32, 1e-5), ("digits", np.int16, 1e-6)]
    )
    def test_dtypes(self, name: str, dtype: Any, rtol: float) -> None:
        points = dataset(name).astype(dtype)
        init = start(points)  # of float64: rounded to the type of the points
        assert init.dtype == np.float64
        x = self.collection(points, heights(len(points), 7))
        ours = KMeans(K, init=init, tol=0).fit(x)
        numbers = points if dtype == np.float32 else points.astype(float)
        theirs = sklearn.cluster.KMeans(K, init=init, tol=0).fit(numbers)
        assert_same(ours, theirs, self.gathered(ours.labels_), rtol=rtol)
        np.testing.assert_array_equal(self.gathered(ours.predict(x)), theirs.labels_)
        assert self.gathered(ours.transform(x)).dtype == numbers.dtype

    def test_blocks_of_two_types(self) -> None:
        points = np.round(dataset("blobs") * 16) / 16  # exact in both
        init = start(points)
        types = [np.float32, np.float64, np.float32]
        blocks = cut(points, [400, 500, 600])
        x = self.blocks([block.astype(each) for block, each in zip(blocks, types, strict=True)])
        ours = KMeans(K, init=init).fit(x)
        assert_same(
            ours, sklearn.cluster.KMeans(K, init=init).fit(points), self.gathered(ours.labels_)
        )

    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    def test_points_far_from_zero(self, dtype: Any) -> None:
        """Steps of 1/16 are exact in float32 up to a million."""
        near = np.round(dataset("blobs") * 16) / 16
        init = start(near, seed=3)
        expected = KMeans(K, init=init, tol=0).fit(near)
        offset = 1e6 if dtype == np.float64 else 5e5
        x = self.collection((near + offset).astype(dtype), heights(len(near), 7))
        ours = KMeans(K, init=(init + offset).astype(dtype), tol=0).fit(x)
        same = (self.gathered(ours.labels_) == expected.labels_).mean()
        assert same == 1.0 if dtype == np.float64 else same > 0.99
        rtol = 1e-6 if dtype == np.float64 else 1e-2
        assert ours.inertia_ == pytest.approx(expected.inertia_, rel=rtol)
        if dtype == np.float64:
            distances = self.gathered(ours.transform(x))
            np.testing.assert_allclose(distances, expected.transform(near), atol=1e-6)

    @pytest.mark.parametrize("init", ["k-means++", "k-means||", "random", "array"])
    def test_sparse_blocks(self, init: str) -> None:
        points = dataset("digits")
        rows = heights(len(points), 7)
        first = start(points) if init == "array" else init
        dense = KMeans(K, init=first, n_init=1, random_state=0, max_iter=3)
        dense.fit(self.collection(points, rows))
        x = self.blocks([scipy.sparse.csr_matrix(block) for block in cut(points, rows)])
        ours = KMeans(K, init=first, n_init=1, random_state=0, max_iter=3).fit(x)
        assert ours.inertia_ == pytest.approx(dense.inertia_, rel=1e-6)
        np.testing.assert_allclose(ours.cluster_centers_, dense.cluster_centers_, atol=1e-6)
        labels = self.gathered(ours.labels_)
        np.testing.assert_array_equal(self.gathered(ours.predict(x)), labels)
        np.testing.assert_allclose(
            self.gathered(ours.transform(x)), dense.transform(points), atol=1e-6
        )
        assert ours.score(x) == pytest.approx(-ours.inertia_, rel=1e-6)

    # --- initialization ---------------------------------------------------------------------

    @pytest.mark.parametrize("init", ["k-means++", "k-means||", "random"])
    def test_draws_do_not_depend_on_blocks(self, init: str) -> None:
        points = dataset("blobs")
        found = [
            KMeans(K, init=init, n_init=1, random_state=7, max_iter=1).fit(
                self.collection(points, heights(len(points), n_blocks))
            )
            for n_blocks in NBLOCKS
        ]
        for other in found[1:]:
            np.testing.assert_allclose(other.cluster_centers_, found[0].cluster_centers_)

    @pytest.mark.parametrize("init", ["k-means++", "k-means||", "random"])
    def test_points_without_weight_are_not_drawn(self, init: str) -> None:
        points = np.random.default_rng(0).normal(size=(90, 2))
        weights = np.ones(90)
        points[1::3] += 1e3
        weights[1::3] = 0.0
        rows = [30, 0, 20, 40]
        x, w = self.collection(points, rows), self.collection(weights, rows)
        for seed in range(3):
            kmeans = KMeans(4, init=init, n_init=1, random_state=seed, max_iter=1)
            kmeans.fit(x, sample_weight=w)
            assert kmeans.cluster_centers_.max() < 10

    @pytest.mark.parametrize("weighted", [False, True])
    def test_random_draws_are_those_of_numpy(self, weighted: bool) -> None:
        """Nearly all of the points: some are drawn more than once, and then again."""
        points = np.random.default_rng(1).normal(size=(12, 2))
        weights = np.arange(12.0) if weighted else np.ones(12)
        kept = weights.copy()
        rows = [0, 5, 1, 6]
        x, w = self.collection(points, rows), self.collection(weights, rows)
        for seed in range(3):
            kmeans = KMeans(11, init="random", n_init=1, random_state=seed)
            kmeans.fit(x, sample_weight=w if weighted else None)
            drawn = np.random.RandomState(seed).choice(
                12, size=11, replace=False, p=weights / weights.sum()
            )
            expected = sklearn.cluster.KMeans(11, init=points[drawn])
            expected.fit(points, sample_weight=weights)
            np.testing.assert_allclose(kmeans.cluster_centers_, expected.cluster_centers_)
        np.testing.assert_array_equal(weights, kept)

    def test_oversampling_is_about_as_good_as_one_by_one(self) -> None:
        points = dataset("blobs")
        x = self.collection(points, heights(len(points), 7))
        settings: dict[str, Any] = {"n_clusters": 10, "n_init": 5, "random_state": 0}
        ours = KMeans(init="k-means||", **settings).fit(x)
        theirs = sklearn.cluster.KMeans(init="k-means++", **settings).fit(points)
        assert ours.inertia_ == pytest.approx(theirs.inertia_, rel=1e-6)

    def test_candidates_are_clustered_and_not_only_drawn_from(self) -> None:
        """So that five passes find a better start than one point after the other does."""
        rng = np.random.default_rng(0)
        sizes = np.maximum(10, 600 * 0.75 ** np.arange(20)).astype(int)
        centers = np.repeat(6 * rng.normal(size=(20, 5)), sizes, axis=0)
        points = rng.permutation(centers + rng.normal(size=centers.shape))
        x = self.collection(points, heights(len(points), 7))
        ours, theirs = [], []
        for seed in range(4):
            settings: dict[str, Any] = {"n_init": 1, "max_iter": 1, "random_state": seed}
            ours.append(KMeans(20, init="k-means||", **settings).fit(x).inertia_)
            theirs.append(sklearn.cluster.KMeans(20, **settings).fit(points).inertia_)
        assert np.mean(ours) < 0.9 * np.mean(theirs)

    def test_a_callable(self) -> None:
        points = dataset("iris")
        x = self.collection(points, heights(len(points), 7))
        calls = []

        def init(X: Any, n_clusters: int, random_state: np.random.RandomState) -> Array:
            calls.append((X, n_clusters))
            return start(points, n_clusters, int(random_state.randint(100)))

        KMeans(3, init=init, n_init=2, random_state=0).fit(x)
        assert [(got is x, n_clusters) for got, n_clusters in calls] == [(True, 3)] * 2

    @pytest.mark.parametrize("n_empty", [1, 3])
    def test_empty_clusters_are_relocated(self, n_empty: int) -> None:
        points = dataset("blobs")
        init = start(points)
        init[:n_empty] += 1e3 * np.arange(1, n_empty + 1)[:, None]
        x = self.collection(points, heights(len(points), 7))
        ours = KMeans(K, init=init).fit(x)
        theirs = sklearn.cluster.KMeans(K, init=init).fit(points)
        # Which of several empty clusters gets which point is up to a partial sort there.
        assert ours.inertia_ == pytest.approx(theirs.inertia_, rel=1e-6)
        assert ours.n_iter_ == theirs.n_iter_
        assert len(np.unique(self.gathered(ours.labels_))) == K

    @pytest.mark.parametrize("init", ["k-means++", "k-means||", "random", "array"])
    def test_fewer_different_points_than_clusters(self, init: str) -> None:
        points = np.repeat([[0.0, 1.0], [2.0, 3.0], [9.0, 9.0]], 5, axis=0)
        x = self.collection(points, [0, 4, 0, 8, 3])
        first: Any = np.arange(10.0).reshape(5, 2) if init == "array" else init
        kmeans = KMeans(5, init=first, n_init=1, random_state=0)
        with pytest.warns(ConvergenceWarning, match=r"clusters \(3\) found smaller than n_cl"):
            kmeans.fit(x)
        assert kmeans.inertia_ == 0.0
        assert kmeans.cluster_centers_.shape == (5, 2)
        assert np.isfinite(kmeans.cluster_centers_).all()

    # --- what comes back --------------------------------------------------------------------

    def test_labels_are_blocked_like_the_points(self) -> None:
        points = dataset("iris")
        rows = heights(len(points), 7)
        kmeans = KMeans(3, random_state=0).fit(self.collection(points, rows))
        assert self.heights(kmeans.labels_) == rows
        assert self.heights(kmeans.predict(self.collection(points, rows))) == rows

    def test_data_frames(self) -> None:
        points = dataset("iris")
        names = ["a", "b", "c", "d"]
        blocks = [pd.DataFrame(block, columns=names) for block in cut(points, [50, 20, 80])]
        init = start(points, 3)
        ours = KMeans(3, init=init).fit(self.blocks(blocks))
        theirs = sklearn.cluster.KMeans(3, init=init).fit(points)
        assert_same(ours, theirs, self.gathered(ours.labels_))
        assert ours.feature_names_in_.tolist() == names
        found = ours.predict(self.blocks(blocks))
        np.testing.assert_array_equal(self.gathered(found), theirs.labels_)
        ours.fit(self.collection(points, [100, 50]))
        assert not hasattr(ours, "feature_names_in_")

    def test_fit_predict_and_fit_transform(self) -> None:
        points = dataset("iris")
        x = self.collection(points, heights(len(points), 7))
        init = start(points, 3)
        theirs = sklearn.cluster.KMeans(3, init=init)
        found = self.gathered(KMeans(3, init=init).fit_predict(x))
        np.testing.assert_array_equal(found, theirs.fit_predict(points))
        found = self.gathered(KMeans(3, init=init).fit_transform(x))
        np.testing.assert_allclose(found, theirs.fit_transform(points), atol=1e-9)

    @pytest.mark.parametrize("materialize", [True, False, "auto"])
    def test_materialized_or_not(self, materialize: Any) -> None:
        points = dataset("digits")
        init = start(points)
        x = self.collection(points, heights(len(points), 200))
        ours = KMeans(K, init=init, materialize=materialize).fit(x)
        theirs = sklearn.cluster.KMeans(K, init=init).fit(points)
        assert_same(ours, theirs, self.gathered(ours.labels_))
        again = KMeans(K, random_state=0, max_iter=2, materialize=materialize).fit(x)
        expected = KMeans(K, random_state=0, max_iter=2).fit(points)
        assert again.inertia_ == pytest.approx(expected.inertia_)

    def test_verbose(self, capsys: pytest.CaptureFixture[str]) -> None:
        points = dataset("iris")
        settings: dict[str, Any] = {"init": start(points, 3), "verbose": 1}
        KMeans(3, **settings).fit(self.collection(points, heights(len(points), 7)))
        ours = capsys.readouterr().out.splitlines()
        sklearn.cluster.KMeans(3, **settings).fit(points)
        theirs = capsys.readouterr().out.splitlines()
        assert len(ours) == len(theirs) > 3
        # Up to the last digits.
        assert [line[:25] for line in ours] == [line[:25] for line in theirs]

    # --- what it costs ----------------------------------------------------------------------

    @pytest.mark.parametrize("per_location", [1, 6])
    def test_one_task_per_partition_and_iteration(
        self, per_location: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        submitted = []
        submit = Partition.submit

        def counting(self: Partition, fn: Any, *args: Any, **kwargs: Any) -> Any:
            submitted.append(self)
            return submit(self, fn, *args, **kwargs)

        points = dataset("iris")
        x = self.collection(points, [3] * 50)
        with split(x, partitions_per_location=per_location) as parts:
            parts.resolve_item_indexes()  # costs one task more where the sizes are not known
            monkeypatch.setattr(Partition, "submit", counting)
            n = len(parts)
            kmeans = KMeans(3, init=start(points, 3)).fit(parts)
        # Besides the iterations: a first pass, the labels, and their release.
        assert len(submitted) == n * (kmeans.n_iter_ + 3)

    @pytest.mark.parametrize("verbose", [0, 1])
    def test_how_often_a_fit_waits_for_its_tasks(
        self, verbose: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """For what was found at the points, for each iteration, and for the labels."""
        waited = []

        def counting(futures: Any) -> Any:
            waited.append(futures)
            return gather(futures)

        for module in (kmeans_points, lloyd, _results):
            monkeypatch.setattr(module, "gather", counting)
        points = dataset("blobs")
        x = self.collection(points, [500, 400, 600])
        kmeans = KMeans(K, init=start(points), max_iter=10, verbose=verbose).fit(x)
        assert len(waited) == (1 + verbose) * kmeans.n_iter_ + 2

    def test_the_split_made_inside_is_closed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        closed = record_closed(monkeypatch)
        points = dataset("iris")
        x = self.collection(points, [100, 50])
        with split(x) as parts:
            KMeans(2, random_state=0).fit(parts)
            assert closed == []
        KMeans(2, random_state=0).fit(x)
        with pytest.raises(InvalidArgumentError):
            KMeans(200).fit(x)
        assert len(closed) == 3

    def test_a_fit_without_surprise_warns_of_nothing(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            KMeans(2, random_state=0).fit(self.collection(dataset("iris"), [50, 100]))
