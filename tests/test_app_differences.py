"""Blocks that differ, masks and byte orders: estimators are right or refuse, in every method."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import SGDClassifier

from spliter import InvalidArgumentError, gather, split
from spliter_apps import (
    CascadeSVM,
    KMeans,
    KNeighborsClassifier,
    KNeighborsRegressor,
    NearestNeighbors,
    RadiusNeighborsRegressor,
    histogramdd,
)
from spliter_apps.incremental import MiniBatches, partial_fit

ROWS = 8
EDGES = [np.linspace(-1, 1, 3), np.linspace(0, 100, 4)]


def points(number: int) -> Any:
    """Return a block whose columns are of different size, so that swapping them is seen."""
    random = np.random.default_rng(number)
    return np.c_[random.uniform(-1, 1, ROWS), random.uniform(0, 100, ROWS)]


def outputs(number: int) -> Any:
    return np.c_[points(number)[:, 1], -points(number)[:, 1]]


X = [points(number) for number in range(3)]
Y = [(block[:, 1] > 50).astype(int) for block in X]
WEIGHTS = [1 + block[:, 1] / 100 for block in X]
ALL_X, ALL_Y, ALL_WEIGHTS = map(np.concatenate, (X, Y, WEIGHTS))
ALL_OUTPUTS = np.concatenate([outputs(number) for number in range(3)])


def masked(array: Any) -> Any:
    return np.ma.masked_array(array, np.arange(array.size).reshape(array.shape) == 1)


@cache
def fitted(kind: type[Any], names: tuple[Any, ...] | None) -> Any:
    """Return an estimator that was fitted in memory."""
    x = ALL_X if names is None else pd.DataFrame(ALL_X, columns=list(names))
    if kind is KMeans:
        return KMeans(2, random_state=0).fit(x)
    return kind().fit(x, ALL_Y)


def batches(part: Any) -> list[int]:
    return [len(batch) for batch in MiniBatches(part, 5)]


FITS: Mapping[str, Callable[[Any], Any]] = {
    "histogramdd": lambda x: histogramdd(x, EDGES),
    "histogramdd of an unknown range": lambda x: histogramdd(x, 4),
    "histogramdd of weighted points": lambda x: histogramdd(x, EDGES, weights=ALL_WEIGHTS),
    "KMeans": lambda x: KMeans(2).fit(x),
    "NearestNeighbors": lambda x: NearestNeighbors().fit(x),
    "KNeighborsRegressor": lambda x: KNeighborsRegressor().fit(x, ALL_X[:, 1]),
    "CascadeSVM": lambda x: CascadeSVM().fit(x, ALL_Y),
    "partial_fit": lambda x: partial_fit(SGDClassifier(), x, ALL_Y, classes=[0, 1]),
    "MiniBatches": lambda x: gather(split(x, partitions_per_location=1).map(batches)),
}

METHODS: Mapping[str, Callable[[Any, Any], Any]] = {
    "KMeans.predict": lambda kind, x: kind(KMeans).predict(x),
    "KMeans.transform": lambda kind, x: kind(KMeans).transform(x),
    "KMeans.score": lambda kind, x: kind(KMeans).score(x),
    "kneighbors": lambda kind, x: kind(NearestNeighbors).kneighbors(x),
    "kneighbors_graph": lambda kind, x: kind(NearestNeighbors).kneighbors_graph(x),
    "radius_neighbors": lambda kind, x: kind(NearestNeighbors).radius_neighbors(x, 3.0),
    "predict_proba": lambda kind, x: kind(KNeighborsClassifier).predict_proba(x),
    "RadiusNeighborsRegressor.predict": lambda kind, x: kind(RadiusNeighborsRegressor).predict(x),
    "KNeighborsClassifier.score": lambda kind, x: kind(KNeighborsClassifier).score(x, ALL_Y),
    "CascadeSVM.predict": lambda kind, x: kind(CascadeSVM).predict(x),
    "decision_function": lambda kind, x: kind(CascadeSVM).decision_function(x),
    "CascadeSVM.score": lambda kind, x: kind(CascadeSVM).score(x, ALL_Y),
}


# --- columns ------------------------------------------------------------------------------------

COLUMNS: Mapping[str, tuple[tuple[Any, ...], Callable[[Any], Any], str]] = {
    "another order": (("a", "b"), lambda frame: frame[["b", "a"]], r"'a', 'b'.*'b', 'a'"),
    "numbered otherwise": ((5, 6), lambda frame: frame[[6, 5]], r"5, 6.*6, 5"),
    "other columns": (("a", "b"), lambda frame: frame.set_axis(["a", "z"], axis=1), r"'b'.*'z'"),
    "a column less": (("a", "b"), lambda frame: frame[["a"]], r"'a', 'b'\].*\['a'\]"),
    "none": (("a", "b"), lambda frame: frame.to_numpy(), r"'a', 'b'.*columns without names"),
}


def frames_that_differ(difference: str) -> tuple[list[Any], str]:
    names, change, message = COLUMNS[difference]
    frames = [pd.DataFrame(block, columns=list(names)) for block in X]
    return [frames[0], change(frames[1]), frames[2]], f"same columns in the same order.*{message}"


@pytest.mark.parametrize("difference", COLUMNS)
@pytest.mark.parametrize("use", FITS)
def test_fit_of_frames_with_other_columns(use: str, difference: str) -> None:
    x, message = frames_that_differ(difference)
    with pytest.raises(InvalidArgumentError, match=message):
        FITS[use](x)


@pytest.mark.parametrize("use", ["KMeans", "NearestNeighbors", "histogramdd of an unknown range"])
def test_fit_of_frames_without_columns(use: str) -> None:
    frames = [pd.DataFrame(block, columns=["a", "b"]) for block in X]
    named, bare = r"\['a', 'b'\]", "columns without names"
    for x, both in (
        ([frames[0], pd.DataFrame(), frames[2]], f"{named} and {bare}"),
        ([pd.DataFrame(), *frames[1:]], f"{bare} and {named}"),
    ):
        with pytest.raises(InvalidArgumentError, match=f"{both}; give all blocks the same"):
            FITS[use](x)
    for empty in (pd.DataFrame(), pd.DataFrame(index=range(2))):
        with pytest.raises(
            InvalidArgumentError, match=r"0 (feature|sample)|_samples=0|least one c"
        ):
            FITS[use]([empty] * 3)


@pytest.mark.parametrize("difference", ["another order", "numbered otherwise", "none"])
@pytest.mark.parametrize("use", METHODS)
def test_frames_with_other_columns_for_a_model_of_arrays(use: str, difference: str) -> None:
    x, message = frames_that_differ(difference)
    with pytest.raises(InvalidArgumentError, match=message):
        METHODS[use](lambda kind: fitted(kind, None), x)


@pytest.mark.parametrize("difference", ["another order", "numbered otherwise", "other columns"])
@pytest.mark.parametrize("use", METHODS)
def test_frames_with_other_columns_than_fitted(use: str, difference: str) -> None:
    names, change, _ = COLUMNS[difference]
    x = [change(pd.DataFrame(block, columns=list(names))) for block in X]
    for given in (x, pd.concat(x)):
        if "score" in use and given is not x:
            continue
        with pytest.raises(ValueError, match="feature names should match"):
            METHODS[use](lambda kind: fitted(kind, names), given)


@pytest.mark.parametrize("use", METHODS)
def test_frames_for_a_model_of_arrays(use: str) -> None:
    def model(kind: Any) -> Any:
        return fitted(kind, None)

    found = METHODS[use](model, [pd.DataFrame(block, columns=["a", "b"]) for block in X])
    for one, expected in zip(np.ravel(found), np.ravel(METHODS[use](model, X)), strict=True):
        np.testing.assert_array_equal(*(getattr(it, "data", it) for it in (one, expected)))


def test_tables_with_their_columns_in_another_order() -> None:
    pa = pytest.importorskip("pyarrow")
    tables = [pa.table({"a": block[:, 0], "b": block[:, 1]}) for block in X]
    assert KMeans(2).fit(tables).feature_names_in_.tolist() == ["a", "b"]
    with pytest.raises(InvalidArgumentError, match=r"'a', 'b'.*'b', 'a'"):
        KMeans(2).fit([tables[0], tables[1].select(["b", "a"])])


def test_first_centres_with_their_columns_in_another_order() -> None:
    frames = [pd.DataFrame(block, columns=["a", "b"]) for block in X]
    centres = frames[0][:2]
    for x in (frames, pd.concat(frames)):
        with pytest.raises(InvalidArgumentError, match=r"`init` must .*'a', 'b'.*'b', 'a'"):
            KMeans(2, init=centres[["b", "a"]]).fit(x)
        KMeans(2, init=centres).fit(x)
        KMeans(2, init=centres.to_numpy()).fit(x)


@pytest.mark.backend("dask")
class TestOnDask:
    def test_partial_fit_of_lazy_collections(self, client: Any) -> None:
        import dask.array as da

        def model() -> Any:
            return SGDClassifier(random_state=0)

        x, y, weights = (
            da.from_array(array, chunks=(ROWS, -1)[: array.ndim])
            for array in (ALL_X, ALL_Y, ALL_WEIGHTS)
        )
        options: Any = {"classes": [0, 1], "in_order": True}
        expected = partial_fit(model(), X, Y, sample_weight=WEIGHTS, **options).coef_
        for given in ((y, weights), (ALL_Y, ALL_WEIGHTS)):
            found = partial_fit(model(), x, given[0], sample_weight=given[1], **options).coef_
            np.testing.assert_array_equal(found, expected)


# --- outputs ------------------------------------------------------------------------------------


def several_outputs(difference: str) -> list[Any]:
    changes: dict[str, Callable[[Any], Any]] = {
        "another order": lambda frame: frame[["q", "p"]],
        "other outputs": lambda frame: frame.set_axis(["p", "z"], axis=1),
        "an output less": lambda frame: frame[["p"]],
        "none": lambda frame: frame.to_numpy(),
    }
    frames = [pd.DataFrame(outputs(number), columns=["p", "q"]) for number in range(3)]
    return [frames[0], changes[difference](frames[1]), frames[2]]


@pytest.mark.parametrize("difference", ["another order", "other outputs", "an output less", "none"])
@pytest.mark.parametrize("kind", [KNeighborsClassifier, KNeighborsRegressor])
def test_outputs_that_differ(kind: type[Any], difference: str) -> None:
    y = several_outputs(difference)
    if kind is KNeighborsClassifier:
        y = [block > 50 for block in y]
    model = kind(1).fit(X, [np.asarray(y[0]), *map(np.asarray, [y[0], y[2]])])
    message = r"all blocks of y must have the same columns in the same order, got \['p', 'q'\] and "
    for use in (kind(1).fit, model.score):
        with pytest.raises(InvalidArgumentError, match=message):
            use(X, y)


def test_outputs_of_fit_and_score() -> None:
    frames = [pd.DataFrame(outputs(number), columns=["p", "q"]) for number in range(3)]
    swapped = [frame[["q", "p"]] for frame in frames]
    for x, y, other in (
        (X, frames, swapped),
        (X, pd.concat(frames), pd.concat(swapped)),
        (ALL_X, pd.concat(frames), pd.concat(swapped)),
    ):
        model = KNeighborsRegressor(1).fit(x, y)
        assert model.score(x, y) == 1.0
        assert model.score(x, np.asarray(pd.concat(frames))) == 1.0
        for given in (x, None):
            with pytest.raises(InvalidArgumentError, match=r"fit and score.*'p', 'q'.*'q', 'p'"):
                model.score(given, other)


@pytest.mark.parametrize("per_location", [1, 3])
@pytest.mark.parametrize(("dtype", "name"), [("U", "strings"), ("M8[s]", "dates")])
def test_labels_of_several_kinds(dtype: str, name: str, per_location: int) -> None:
    y = [Y[0], Y[1].astype(dtype), Y[2]]
    message = f"labels must be of one kind, got .*{name}"
    for kind in (KNeighborsClassifier, CascadeSVM):
        for use in (kind().fit, fitted(kind, None).score):
            with (
                split(X, y, partitions_per_location=per_location) as parts,
                pytest.raises(InvalidArgumentError, match=message),
            ):
                use(parts)
    with (
        split(X, [y[0].astype(object), *y[1:]], partitions_per_location=per_location) as parts,
        pytest.raises(InvalidArgumentError),
    ):
        KNeighborsClassifier().fit(parts)


def test_empty_blocks_of_labels_have_any_dtype() -> None:
    text = [labels.astype(str) for labels in Y]
    none = np.empty((0, 2))
    model: Any = KNeighborsClassifier(1).fit([*X, none], [*text, np.empty(0)])
    assert model.classes_.dtype == np.dtype("<U21")
    assert model.score([*X, none], [*text, np.empty(0)]) == 1.0


# --- masks --------------------------------------------------------------------------------------

LABELLED: Mapping[str, Callable[[Any, Any], Any]] = {
    "KNeighborsClassifier": lambda x, y: KNeighborsClassifier(1).fit(x, y),
    "KNeighborsRegressor": lambda x, y: KNeighborsRegressor(1).fit(x, y),
    "CascadeSVM": lambda x, y: CascadeSVM().fit(x, y),
    "KNeighborsClassifier.score": lambda x, y: fitted(KNeighborsClassifier, None).score(x, y),
    "KNeighborsRegressor.score": lambda x, y: fitted(KNeighborsRegressor, None).score(x, y),
    "CascadeSVM.score": lambda x, y: fitted(CascadeSVM, None).score(x, y),
}

WEIGHTED: Mapping[str, Callable[[Any, Any, Any], Any]] = {
    "histogramdd": lambda x, y, w: histogramdd(x, EDGES, weights=w),
    "KMeans": lambda x, y, w: KMeans(2).fit(x, sample_weight=w),
    "KMeans.score": lambda x, y, w: fitted(KMeans, None).score(x, sample_weight=w),
    "CascadeSVM": lambda x, y, w: CascadeSVM().fit(x, y, w),
    "CascadeSVM.score": lambda x, y, w: fitted(CascadeSVM, None).score(x, y, w),
    "KNeighborsClassifier.score": lambda x, y, w: fitted(KNeighborsClassifier, None).score(x, y, w),
    "KNeighborsRegressor.score": lambda x, y, w: fitted(KNeighborsRegressor, None).score(x, y, w),
}


@pytest.mark.parametrize("use", LABELLED)
def test_masked_labels(use: str) -> None:
    for x, y in (
        (X, [Y[0], masked(Y[1]), Y[2]]),
        (X, masked(ALL_Y)),
        (ALL_X, masked(ALL_Y)),
    ):
        with pytest.raises(InvalidArgumentError, match=r"y.*masked elements are not supported"):
            LABELLED[use](x, y)
    LABELLED[use](X, [np.ma.masked_array(labels) for labels in Y])


@pytest.mark.parametrize("use", WEIGHTED)
def test_masked_weights(use: str) -> None:
    for x, y, weights in (
        (X, Y, [WEIGHTS[0], masked(WEIGHTS[1]), WEIGHTS[2]]),
        (X, Y, masked(ALL_WEIGHTS)),
        (ALL_X, ALL_Y, masked(ALL_WEIGHTS)),
    ):
        with pytest.raises(InvalidArgumentError, match=r"weight.*masked elements are not support"):
            WEIGHTED[use](x, y, weights)
    WEIGHTED[use](X, Y, [np.ma.masked_array(weights) for weights in WEIGHTS])


@pytest.mark.parametrize("use", [*FITS, *METHODS])
def test_masked_points_in_memory(use: str) -> None:
    if use == "MiniBatches" or use.startswith("partial_fit"):
        return  # of blocks alone
    method = FITS[use] if use in FITS else partial(METHODS[use], lambda kind: fitted(kind, None))
    with pytest.raises(InvalidArgumentError, match="masked elements are not supported"):
        method(masked(ALL_X))


def test_blocks_that_the_model_refuses() -> None:
    text = pd.DataFrame({"a": ["x"] * ROWS, "b": 1.0})
    frames = [pd.DataFrame(block, columns=["a", "b"]) for block in X]
    message = r"SGDClassifier.partial_fit, block \(1,.*could not convert string to float"
    with pytest.raises(InvalidArgumentError, match=message):
        partial_fit(SGDClassifier(), [frames[0], text, frames[2]], Y, classes=[0, 1])
    with pytest.raises(InvalidArgumentError, match=r"block \(0,.*classes must be passed"):
        partial_fit(SGDClassifier(), X, Y)


# --- byte order, and sparse blocks --------------------------------------------------------------


def big_endian(block: Any) -> Any:
    if hasattr(block, "iloc"):
        return pd.DataFrame({name: big_endian(block[name].to_numpy()) for name in block})
    return block.astype(block.dtype.newbyteorder(">"))


@pytest.mark.parametrize("as_frames", [False, True])
def test_partial_fit_of_numbers_in_another_byte_order(as_frames: bool) -> None:
    x = [pd.DataFrame(block, columns=["a", "b"]) for block in X] if as_frames else X
    mixed = [*map(big_endian, x[:2]), x[2]]
    swapped = [*map(big_endian, Y)], [*map(big_endian, WEIGHTS)]
    found, expected = (
        partial_fit(
            SGDClassifier(random_state=0),
            points,
            labels,
            sample_weight=weights,
            classes=[0, 1],
            in_order=True,
        ).coef_
        for points, labels, weights in ((mixed, *swapped), (x, Y, WEIGHTS))
    )
    np.testing.assert_array_equal(found, expected)
