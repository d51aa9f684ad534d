"""Estimators on lazy Dask collections: by themselves, and in scikit-learn's model selection."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.waiting import wait_until

pytest.importorskip("distributed")

import dask.array as da
import dask.dataframe as dd
from distributed import Client
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from spliter import InvalidArgumentError
from spliter_apps import (
    CascadeSVM,
    KMeans,
    KNeighborsClassifier,
    KNeighborsRegressor,
    NearestNeighbors,
)
from tests.dask_backend.test_dask_split import held
from tests.dask_backend.test_persist import counted

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.backend("dask"),
    pytest.mark.timeout(120),
    pytest.mark.usefixtures("client"),
]

Array = npt.NDArray[Any]


def iris() -> tuple[Array, Array]:
    """Return points and classes in random order."""
    found: tuple[Array, Array] = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(found[0]))
    return found[0][order], found[1][order]


def lazy(array: Array) -> Any:
    """Return an array whose blocks tasks would have to make."""
    return da.from_array(array, chunks=(30, *array.shape[1:])) + 0


def nothing_left(client: Client) -> bool:
    """Whether the scheduler keeps neither data nor results."""
    return held(client, "") == 0


@pytest.mark.parametrize(
    "estimator",
    [KMeans(3, random_state=0), CascadeSVM(), KNeighborsClassifier(), KNeighborsRegressor()],
    ids=lambda estimator: type(estimator).__name__,
)
def test_fit_predict_and_score_compute_and_free(client: Client, estimator: Any) -> None:
    points, classes = iris()
    x, y = lazy(points), lazy(classes)
    predicted = estimator.fit(x, y).predict(x)
    scored = estimator.score(x, y)
    np.testing.assert_array_equal(predicted.compute(), estimator.predict(points))
    expected = type(estimator)(**estimator.get_params()).fit(points, classes)
    assert scored == pytest.approx(expected.score(points, classes))
    wait_until(lambda: held(client, "add") == 0 or hasattr(estimator, "_forest"))
    del predicted
    for name in [name for name in vars(estimator) if name.endswith("_") or name == "_forest"]:
        delattr(estimator, name)  # the parameters of the test keep the estimator
    wait_until(lambda: nothing_left(client))


def test_a_forest_keeps_the_points_as_long_as_its_estimator(client: Client) -> None:
    points, _ = iris()
    search = NearestNeighbors(n_neighbors=2).fit(lazy(points))
    distances, indexes = search.kneighbors(lazy(points[:50]))
    expected = NearestNeighbors(n_neighbors=2).fit(points).kneighbors(points[:50])
    np.testing.assert_allclose(distances.compute(), expected[0])
    np.testing.assert_array_equal(indexes.compute(), expected[1])
    assert held(client, "add") >= 5
    del search, distances, indexes
    wait_until(lambda: nothing_left(client))


@pytest.mark.parametrize(
    "estimator",
    [KMeans(3, random_state=0), CascadeSVM(), KNeighborsClassifier(), KNeighborsRegressor()],
    ids=lambda estimator: type(estimator).__name__,
)
def test_cross_val_score(client: Client, estimator: Any) -> None:
    points, classes = iris()
    found = cross_val_score(estimator, lazy(points), lazy(classes), cv=2, error_score="raise")
    expected = cross_val_score(estimator, points, classes, cv=2)
    np.testing.assert_allclose(found, expected)
    wait_until(lambda: nothing_left(client))


def test_labels_in_memory_next_to_lazy_points(client: Client) -> None:
    points, classes = iris()
    x = lazy(points).map_blocks(counted, dtype=float, topic="fitted")
    classifier = KNeighborsClassifier().fit(x, classes)
    assert len(client.get_events("fitted")) == 5
    found = cross_val_score(classifier, lazy(points), classes, cv=2, error_score="raise")
    np.testing.assert_allclose(found, cross_val_score(classifier, points, classes, cv=2))
    del classifier
    wait_until(lambda: nothing_left(client))


def test_grid_search(client: Client) -> None:
    points, classes = iris()
    grid = {"n_neighbors": [1, 60]}
    search = GridSearchCV(KNeighborsClassifier(), grid, cv=2, error_score="raise")
    search.fit(lazy(points), lazy(classes))
    assert search.best_params_ == {"n_neighbors": 1}
    np.testing.assert_array_equal(search.predict(lazy(points)).compute(), classes)
    del search
    wait_until(lambda: nothing_left(client))


def test_predictions_of_folds_and_other_scores(client: Client) -> None:
    points, classes = iris()
    x, y = lazy(points), lazy(classes)
    estimator = KNeighborsClassifier()
    predicted = cross_val_predict(estimator, x, y, cv=2)
    np.testing.assert_array_equal(predicted, cross_val_predict(estimator, points, classes, cv=2))
    found = cross_val_score(estimator, x, y, cv=2, scoring="f1_macro", error_score="raise")
    expected = cross_val_score(estimator, points, classes, cv=2, scoring="f1_macro")
    np.testing.assert_allclose(found, expected)


def test_a_scaler_of_dask_ml_leaves_the_points_in_blocks(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    preprocessing = pytest.importorskip("dask_ml.preprocessing")
    points, _ = iris()
    x = lazy(points)
    expected = make_pipeline(StandardScaler(), KMeans(3, random_state=0)).fit(points)
    pipeline = make_pipeline(preprocessing.StandardScaler(), KMeans(3, random_state=0))

    def refuse(array: da.Array, *args: Any, **kwargs: Any) -> None:
        raise AssertionError(f"{array} is gathered at the client")

    with monkeypatch.context() as patched:
        patched.setattr(da.Array, "__array__", refuse)
        labels = pipeline.fit(x).predict(x)
        with pytest.raises(AssertionError, match="is gathered"):  # the positive control
            make_pipeline(StandardScaler(), KMeans(3)).fit(x)
    assert isinstance(labels, da.Array)
    np.testing.assert_array_equal(labels.compute(), expected.predict(points))
    assert pipeline.score(x) == pytest.approx(expected.score(points))


@pytest.mark.parametrize("container", ["pandas", "polars"])
def test_one_dataframe_of_points_in_blocks_is_refused(container: str) -> None:
    points, _ = iris()
    kmeans = KMeans(3, random_state=0).fit(points).set_output(transform=container)
    for blocked in (lazy(points), [points[:50], points[50:]]):
        for use in (kmeans.transform, kmeans.fit_transform):
            with pytest.raises(InvalidArgumentError, match=f"transform_output='{container}'"):
                use(blocked)
    distances = kmeans.set_output(transform="default").transform(lazy(points))
    frame = dd.from_dask_array(distances, columns=list(kmeans.get_feature_names_out()))
    assert list(frame.columns) == ["kmeans0", "kmeans1", "kmeans2"]
    assert len(frame) == len(points)
