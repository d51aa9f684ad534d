"""The features that take several blocks, and the table of what they do if blocks differ.

``python -m tests.features_of_blocks`` writes the table to ``docs/guarantees.md``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
import pandas as pd
import sklearn.cluster
import sklearn.decomposition
import sklearn.linear_model
import sklearn.neighbors
import xarray as xr
import xgboost
from sklearn.naive_bayes import MultinomialNB
from sklearn.svm import SVC

from spliter import gather, reduce, split
from spliter import layout as lo
from spliter_apps import (
    PCA,
    CascadeSVM,
    KMeans,
    KNeighborsClassifier,
    KNeighborsRegressor,
    LinearRegression,
    NearestNeighbors,
    RadiusNeighborsClassifier,
    RadiusNeighborsRegressor,
    Ridge,
    histogramdd,
)
from spliter_apps.boosting import colocate, train_xgboost
from spliter_apps.incremental import MiniBatches, partial_fit
from spliter_backends.xarray import along
from tests.conftest import ROOT
from tests.different_blocks import (
    DIFFERENCES,
    NBLOCKS,
    ROWS,
    Case,
    Deliver,
    Feature,
    Kind,
    Whole,
    concatenated,
    in_process,
    numbers,
    outcome,
    plain_block,
    plainly,
)

PAGE = ROOT / "docs" / "guarantees.md"
HEAD = "| features | refused | does not exist there |\n"
"""The head of the table, which is the last part of the page."""

SOME_ROWS = [-1, 0, 13, 8, 8, 2]
CENTRES = np.array([[1.2, 4.4], [5.3, 2.5]])
QUERIES = np.array([[1.2, 4.4], [5.3, 2.5], [4.4, 1.5]])
PARAMS: dict[str, Any] = {
    "objective": "binary:logistic",
    "min_child_weight": 0,
    "nthread": 1,
    "base_score": 0.5,
}
BOOSTING: dict[str, Any] = {"num_boost_round": 4, "enable_categorical": True, "timeout": 60}


def first_column(block: Any) -> Any:
    return block["a"].to_numpy() if hasattr(block, "iloc") else plainly(block)[:, 0]


def last_column(whole: Any) -> Any:
    return whole[["b"]] if hasattr(whole, "iloc") else whole[:, [1]]


def some_rows(whole: Any) -> Any:
    numbers = np.arange(len(whole))[SOME_ROWS]
    return whole.iloc[numbers] if hasattr(whole, "iloc") else whole[numbers]


def computed(made: Any) -> Any:
    if isinstance(made, list):
        return concatenated(made)
    return made if isinstance(made, np.ndarray) else plainly(made.compute())


def indexed(part: Any) -> list[Any]:
    return [block for _, block in part.items()]


def batches(part: Any, columns: Any = None) -> list[Any]:
    return [batch.copy() for batch in part.batches(200, columns)]


def mini_batches(part: Any) -> list[Any]:
    return list(MiniBatches(part, 5))


def materialized(part: Any, columns: Any = None) -> list[Any]:
    return [part.materialize(columns)]


def as_columns(part: Any) -> list[Any]:
    found = part.materialize(as_columns=True)
    return [pd.DataFrame(found) if isinstance(found, dict) else found]


def total(part: Any) -> float:
    return sum(float(np.ma.sum(first_column(block))) for block in part)


class Echo:
    """A source of records, each of which is its key."""

    max_batch = 10

    def get_many(self, keys: Any) -> Any:
        return [(key,) for key in keys]


def looked_up(part: Any) -> list[Any]:
    return [np.array(records) for _, records in part.lookup(Echo(), first_column) if records]


def doubled(block: Any) -> Any:
    return block.assign(a=2 * block["a"]) if hasattr(block, "iloc") else 2 * block


def map_blocks(case: Case) -> Any:
    meta = doubled(plain_block("points", case.blocks.kind, 0))[:0]
    return computed(case.parts().map_blocks(doubled, meta=meta))


def item_indexes(case: Case) -> Any:
    parts = case.parts()
    return np.concatenate([part.get_item_indexes() for part in parts])


def aligned(case: Case) -> Any:
    made = gather(case.parts(case.labels).map(list))
    return concatenated(block for blocks in made for block in blocks)


def messages(part: Any) -> list[Any]:
    return [lo.read_message(message(block)).array() for block in part]


def message(block: Any) -> Any:
    return lo.write_message(lo.of_array(block).commit(), block, 1, block.dtype, block.shape)


def rows_of_xarray(case: Case) -> Any:
    """Return rows of a DataArray whose chunks are the blocks."""
    empty = case.blocks.changed if case.blocks.name == "empty block" else []
    make = dask.delayed(case.blocks.make)
    chunks = [
        da.from_delayed(make("points", number), (0 if number in empty else ROWS, 2), float)
        for number in range(NBLOCKS)
    ]
    data = xr.DataArray(da.concatenate(chunks), dims=("row", "column"))
    return split(along(data, "row"), persist=True).take(SOME_ROWS).data


def histogram(fn: Any, it: Case | Whole, weights: bool = False) -> Any:
    given = it.weights if weights else None
    return fn(it.points, bins=(3, 4), range=[(0, 8), (0, 8)], weights=given)[0]


def kmeans(kind: Any, it: Case | Whole, weights: bool = False) -> Any:
    model = kind(2, init=CENTRES, n_init=1)
    model.fit(it.points, sample_weight=it.weights if weights else None)
    return model.cluster_centers_, computed(model.labels_)


def components(kind: Any, it: Case | Whole) -> Any:
    return kind(svd_solver="covariance_eigh").fit(it.points).components_


def line(kind: Any, it: Case | Whole, weights: bool = False) -> Any:
    model = kind().fit(it.points, it.labels, it.weights if weights else None)
    return model.coef_, model.intercept_


def svm(kind: Any, it: Case | Whole) -> Any:
    return kind(kernel="linear").fit(it.points, it.labels).predict(QUERIES)


def neighbours(kind: Any, it: Case | Whole, **options: Any) -> Any:
    labels = it.labels
    model = kind(**options or {"n_neighbors": 3}).fit(it.points, labels)
    return model.predict(QUERIES), model.score(it.points, labels)


def nearest(kind: Any, it: Case | Whole) -> Any:
    return kind(n_neighbors=3).fit(it.points).kneighbors(QUERIES)


def predictions(model: Any, it: Case | Whole) -> Any:
    """Return predictions of a model that was fitted in memory, to points with the names of `it`."""
    return computed(model.fit(*plain_rows(kind_of(it))).predict(it.points))


def kind_of(it: Case | Whole) -> Kind:
    """Return the kind of points in memory that have the names of `it`."""
    return "frame" if isinstance(it, Case) and it.blocks.kind != "array" else "array"


def plain_rows(kind: Kind) -> tuple[Any, Any]:
    """Return points of a kind and their labels in memory."""
    numbers = range(NBLOCKS)
    points = concatenated(plain_block("points", kind, number) for number in numbers)
    return points, concatenated(plain_block("labels", "array", number) for number in numbers)


def bayes(it: Case | Whole, weights: bool = False) -> Any:
    given = {"sample_weight": it.weights} if weights else {}
    if isinstance(it, Case):
        model = partial_fit(MultinomialNB(), it.points, it.labels, classes=[0, 1], **given)
    else:
        model = MultinomialNB().fit(it.points, numbers(it.y), **given)
    return model.feature_log_prob_


def boosted(it: Case | Whole, weights: bool = False) -> Any:
    """Return predictions of a model that was trained in memory or on blocks."""
    given = {"weight": it.weights} if weights else {}
    if isinstance(it, Case):
        kind = it.blocks.kind if it.blocks.of == "points" else "array"
        booster = train_xgboost(PARAMS, it.points, it.labels, **given, **BOOSTING).booster
    else:
        points, kind = boosting_points(it)
        booster = xgboost.train(PARAMS, matrix(points, numbers(it.y), **given), 4)
    return booster.predict(matrix(plain_block("points", kind, 0)))


def validated(it: Case | Whole) -> Any:
    """Return the losses on rows whose blocks differ, for a model trained on blocks that do not."""
    if isinstance(it, Case):
        plain = replace(it, blocks=replace(it.blocks, changed=[]))
        rows = {"data": it.points, "label": it.labels}
        options = {"evals": [(rows, "rows")], **BOOSTING}
        trained = train_xgboost(PARAMS, plain.points, plain.labels, **options)
        return trained.history["rows"]["logloss"]
    points, kind = boosting_points(it)
    losses: Any = {}
    x, y = plain_rows(kind)
    train = matrix(x.astype({"b": "category"}) if kind == "categories" else x, y)
    evals = [(matrix(points, it.y), "rows")]
    xgboost.train(PARAMS, train, 4, evals=evals, evals_result=losses, verbose_eval=False)
    return losses["rows"]["logloss"]


def boosting_points(whole: Whole) -> tuple[Any, Kind]:
    if not isinstance(whole.x, pd.DataFrame):
        return whole.points, "array"
    if set(whole.x["b"]) == {"no", "yes"}:
        return whole.x.astype({"b": "category"}), "categories"
    return whole.x, "frame"


def matrix(*args: Any, **given: Any) -> Any:
    return xgboost.DMatrix(*args, enable_categorical=True, **given)


def colocated(name: str, case: Case) -> Any:
    with colocate(case.points, label=case.labels) as rows:
        return concatenated(gather(rows.map(lambda here: here.concatenated()[name])))


def each(fn: Callable[..., Any]) -> Callable[[Case], Any]:
    return lambda case: case.each(fn)


x, y = operator.attrgetter("x"), operator.attrgetter("y")
NAMES = ("order of columns", "other columns")
FRAMES = (*NAMES, "categories", "strings")
CODES = (*NAMES, "categories")

of_labels = partial(Feature, of="labels")
of_weights = partial(Feature, of="weights", without=CODES)
sk = sklearn.neighbors

FEATURES: Mapping[str, Feature] = {
    "`for block in partition`": Feature(each(list), x),
    "`partition.items()`": Feature(each(indexed), x),
    "`partition.batches()`": Feature(each(batches), x),
    "`partition.batches(columns=)`": Feature(
        lambda it: it.each(batches, it.columns), lambda it: last_column(it.x)
    ),
    "`split(materialize=True)`": Feature(lambda it: it.each(list, materialize=True), x),
    "`partition.materialize()`": Feature(each(materialized), x),
    "`partition.materialize(columns=)`": Feature(
        lambda it: it.each(materialized, it.columns), lambda it: last_column(it.x)
    ),
    "`partition.materialize(as_columns=True)`": Feature(each(as_columns), x),
    "`Split.take`": Feature(lambda it: it.parts().take(SOME_ROWS), lambda it: some_rows(it.x)),
    "`Split.take(columns=)`": Feature(
        lambda it: it.parts().take(SOME_ROWS, it.columns), lambda it: last_column(some_rows(it.x))
    ),
    "`Split.map_blocks`": Feature(map_blocks, lambda it: doubled(it.x)),
    "`Split.map`, `reduce`": Feature(
        lambda it: reduce(operator.add, it.parts().map(total)).result(),
        lambda it: np.ma.sum(first_column(it.x)),
    ),
    "`Split.map_reduce`": Feature(
        lambda it: it.parts().map_reduce(total, operator.add).result(),
        lambda it: np.ma.sum(first_column(it.x)),
    ),
    "`split(x, y)`": Feature(aligned, lambda it: [it.x, it.y]),
    "`split(x, y)`: y": of_labels(aligned, lambda it: [it.x, it.y]),
    "`get_item_indexes`": Feature(item_indexes, lambda it: np.arange(len(it.x))),
    "`partition.lookup`": Feature(each(looked_up), lambda it: numbers(first_column(it.x))[:, None]),
    "`histogramdd`": Feature(partial(histogram, histogramdd), partial(histogram, np.histogramdd)),
    "`histogramdd`: weights": of_weights(
        partial(histogram, histogramdd, weights=True),
        partial(histogram, np.histogramdd, weights=True),
    ),
    "`KMeans`": Feature(partial(kmeans, KMeans), partial(kmeans, sklearn.cluster.KMeans)),
    "`KMeans`: weights": of_weights(
        partial(kmeans, KMeans, weights=True), partial(kmeans, sklearn.cluster.KMeans, weights=True)
    ),
    "`KMeans.predict`": Feature(
        partial(predictions, KMeans(2, init=CENTRES)),
        partial(predictions, sklearn.cluster.KMeans(2, init=CENTRES)),
    ),
    "`PCA`": Feature(partial(components, PCA), partial(components, sklearn.decomposition.PCA)),
    "`PCA.transform`": Feature(
        lambda it: computed(PCA().fit(plain_rows(kind_of(it))[0]).transform(it.points)),
        lambda it: sklearn.decomposition.PCA().fit(plain_rows("array")[0]).transform(it.points),
    ),
    "`LinearRegression`": Feature(
        partial(line, LinearRegression), partial(line, sklearn.linear_model.LinearRegression)
    ),
    "`LinearRegression`: y": of_labels(
        partial(line, LinearRegression),
        lambda it: line(sklearn.linear_model.LinearRegression, Whole(it.x, numbers(it.y), it.w)),
        without=("categories",),
    ),
    "`Ridge`: weights": of_weights(
        partial(line, Ridge, weights=True),
        partial(line, sklearn.linear_model.Ridge, weights=True),
    ),
    "`CascadeSVM`": Feature(partial(svm, CascadeSVM), partial(svm, SVC)),
    "`CascadeSVM`: y": of_labels(partial(svm, CascadeSVM), partial(svm, SVC), without=NAMES),
    "`CascadeSVM.predict`": Feature(
        partial(predictions, CascadeSVM(kernel="linear")),
        partial(predictions, SVC(kernel="linear")),
    ),
    "`NearestNeighbors.kneighbors`": Feature(
        partial(nearest, NearestNeighbors), partial(nearest, sk.NearestNeighbors)
    ),
    "`KNeighborsClassifier`": Feature(
        partial(neighbours, KNeighborsClassifier), partial(neighbours, sk.KNeighborsClassifier)
    ),
    "`KNeighborsClassifier`: y": of_labels(
        partial(neighbours, KNeighborsClassifier),
        partial(neighbours, sk.KNeighborsClassifier),
        without=NAMES,
    ),
    "`KNeighborsClassifier.predict`": Feature(
        partial(predictions, KNeighborsClassifier(3)),
        partial(predictions, sk.KNeighborsClassifier(3)),
    ),
    "`KNeighborsRegressor`: y": of_labels(
        partial(neighbours, KNeighborsRegressor),
        lambda it: neighbours(sk.KNeighborsRegressor, Whole(it.x, numbers(it.y), it.w)),
        without=("categories",),
    ),
    "`RadiusNeighborsRegressor`": Feature(
        partial(neighbours, RadiusNeighborsRegressor, radius=1.5),
        partial(neighbours, sk.RadiusNeighborsRegressor, radius=1.5),
    ),
    "`RadiusNeighborsClassifier`": Feature(
        partial(neighbours, RadiusNeighborsClassifier, radius=1.5),
        partial(neighbours, sk.RadiusNeighborsClassifier, radius=1.5),
    ),
    "`partial_fit`": Feature(bayes, bayes),
    "`partial_fit`: y": of_labels(bayes, bayes, without=CODES),
    "`partial_fit`: weights": of_weights(
        partial(bayes, weights=True), partial(bayes, weights=True)
    ),
    "`MiniBatches`": Feature(each(mini_batches), x),
    "`train_xgboost`": Feature(boosted, boosted),
    "`train_xgboost`: label": of_labels(boosted, boosted, without=CODES),
    "`train_xgboost`: weight": of_weights(
        partial(boosted, weights=True), partial(boosted, weights=True)
    ),
    "`train_xgboost`: evals": Feature(validated, validated),
    "`colocate`": Feature(partial(colocated, "data"), x),
    "`colocate`: label": of_labels(partial(colocated, "label"), y),
    "`layout.write_message`": Feature(each(messages), x, without=FRAMES),
    "xarray, `take`": Feature(
        rows_of_xarray, lambda it: some_rows(xr.DataArray(it.x).data), without=FRAMES
    ),
}


def outcomes_of(feature: str, deliver: Deliver) -> tuple[str, ...]:
    """Return what comes of a feature for each of the differences."""
    return tuple(outcome(FEATURES[feature], name, deliver) for name in DIFFERENCES)


def outcomes_on_page() -> dict[str, tuple[str, ...]]:
    """Return the same of each feature, as the table has it."""
    text = PAGE.read_text(encoding="utf-8")
    found = {}
    for line in text[text.index(HEAD) :].splitlines()[2:]:
        features, refused, absent = (cell.strip() for cell in line.split("|")[1:-1])
        said = dict.fromkeys(refused.split(", "), "refused")
        said |= dict.fromkeys(absent.split(", "), "-")
        assert said.keys() <= {*DIFFERENCES, ""}
        for feature in features.split("; "):
            assert feature not in found
            found[feature] = tuple(said.get(name, "right") for name in DIFFERENCES)
    return found


def rows() -> Iterator[str]:
    """Yield the rows of the table: one for all features that refuse the same differences."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for feature in FEATURES:
        alike.setdefault(outcomes_of(feature, in_process), []).append(feature)
    for outcomes, features in alike.items():
        names: dict[str, list[str]] = {"right": [], "refused": [], "-": []}
        for name, found in zip(DIFFERENCES, outcomes, strict=True):
            names[found].append(name)  # a KeyError for a wrong result
        cells = ["; ".join(features), ", ".join(names["refused"]), ", ".join(names["-"])]
        yield f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    before, _, _ = PAGE.read_text(encoding="utf-8").partition(HEAD)
    PAGE.write_text(before + HEAD + "| --- | --- | --- |\n" + "".join(rows()), encoding="utf-8")
