"""Columns of categories: boosting is right wherever rows are, or refuses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("distributed")
pytest.importorskip("xgboost")

import xgboost
from distributed import Client
from sklearn.metrics import roc_auc_score

from spliter import InvalidArgumentError, gather
from spliter_apps.boosting import colocate
from tests.boosting_data import (
    FRAME,
    LABELS,
    METHODS,
    PLACES,
    SETTINGS,
    halves,
    in_two,
    placed,
    same_predictions,
    train_xgboost,
)

pytestmark = [pytest.mark.thorough, pytest.mark.backend("dask")]


def categorical(values: Any = None) -> pd.DataFrame:
    """Return points with a column of categories, which the labels depend on."""
    kinds = np.array(list("hgfedcbalkji"))[FRAME["d"].to_numpy().astype(int)]
    return FRAME.assign(d=pd.Categorical(kinds if values is None else values))


def by_kind(frame: pd.DataFrame) -> Any:
    return frame["d"].isin(list("gda")).to_numpy().astype(np.int64)


@METHODS
@pytest.mark.parametrize("booster", ["gbtree", "dart"])
def test_sets_with_categories_that_a_location_has_no_rows_of(
    client: Client, tree_method: str, booster: str
) -> None:
    frame = categorical()
    y = by_kind(frame)
    valid = {"data": placed(client, [frame[:100]], (1,)), "label": y[:100]}
    params = {**SETTINGS, "tree_method": tree_method, "booster": booster}
    options: dict[str, Any] = {"num_boost_round": 12, "early_stopping_rounds": 3}
    trained = train_xgboost(
        params,
        *in_two(client, frame, y, at=(0, 0)),
        evals=[(valid, "valid")],
        enable_categorical=True,
        **options,
    )
    whole = xgboost.DMatrix(frame, y, enable_categorical=True)
    held = xgboost.DMatrix(frame[:100], y[:100], enable_categorical=True)
    history: dict[str, Any] = {}
    theirs = xgboost.train(
        params, whole, evals=[(held, "valid")], evals_result=history, verbose_eval=False, **options
    )
    assert trained.trainers == 2
    np.testing.assert_allclose(
        trained.history["valid"]["logloss"], history["valid"]["logloss"], atol=1e-4
    )
    assert trained.booster.best_iteration == theirs.best_iteration
    same_predictions(trained, theirs, whole)
    assert trained.booster.feature_types == theirs.feature_types
    assert trained.booster.feature_names == theirs.feature_names
    assert trained.booster.get_dump() == theirs.get_dump()


@METHODS
def test_locations_with_empty_blocks_of_categories(client: Client, tree_method: str) -> None:
    frame = categorical()
    y = by_kind(frame)
    nothing = frame[:0].assign(d=pd.Categorical([]))
    data = placed(client, [nothing, *halves(frame), frame[:0]], (0, 1, 1, 0))
    label = placed(client, [y[:0], *halves(y), y[:0]], (0, 1, 1, 0))
    params = {**SETTINGS, "tree_method": tree_method}
    trained = train_xgboost(params, data, label, enable_categorical=True)
    whole = xgboost.DMatrix(frame, y, enable_categorical=True)
    assert trained.trainers == 2
    same_predictions(trained, xgboost.train(params, whole), whole)


def test_the_booster_knows_the_categories_by_their_value(client: Client) -> None:
    frame = categorical()
    y = by_kind(frame)
    data, label = in_two(client, frame, y)
    booster = train_xgboost(SETTINGS, data, label, enable_categorical=True).booster
    reordered = frame.assign(d=frame["d"].cat.set_categories(sorted("hgfedcbalkji", reverse=True)))
    scores = [
        booster.predict(xgboost.DMatrix(each, enable_categorical=True))
        for each in (frame, reordered, frame[::-1].reset_index(drop=True))
    ]
    np.testing.assert_array_equal(scores[0], scores[1])
    np.testing.assert_array_equal(scores[0], scores[2][::-1])
    assert roc_auc_score(y, scores[0]) > 0.99
    with pytest.raises(InvalidArgumentError, match="xgb_model cannot be continued on categories"):
        train_xgboost(SETTINGS, data, label, enable_categorical=True, xgb_model=booster)
    with pytest.raises(ValueError, match="enable_categorical"):
        train_xgboost(SETTINGS, data, label)


@METHODS
def test_categories_that_are_numbers_or_missing(client: Client, tree_method: str) -> None:
    frame = categorical(FRAME["d"].astype(int) * 7)
    frame.loc[frame.index % 9 == 0, "d"] = None
    y = frame["d"].isin([7, 28, 56]).to_numpy().astype(np.int64)
    blocks = [
        block.assign(d=block["d"].cat.remove_unused_categories())
        for block in (frame[:20], frame[20:])
    ]
    data, label = placed(client, blocks, (0, 1)), placed(client, [y[:20], y[20:]], (0, 1))
    params = {**SETTINGS, "tree_method": tree_method}
    trained = train_xgboost(params, data, label, enable_categorical=True)
    scores = trained.booster.predict(xgboost.DMatrix(frame, enable_categorical=True))
    assert roc_auc_score(y, scores) > 0.99


@PLACES
def test_categories_of_several_kinds_are_refused(client: Client, at: Sequence[int]) -> None:
    text, numbers = categorical(), categorical(FRAME["d"].astype(int))
    label = placed(client, halves(LABELS), at)
    for data, message in [
        ([halves(text)[0], halves(numbers)[1]], r"column 'd' are of several kinds \(int, str\)"),
        ([halves(text)[0], halves(FRAME)[1]], "column 'd' of data has categories in some blocks"),
    ]:
        blocks = placed(client, data, at)
        with pytest.raises(InvalidArgumentError, match=message):
            train_xgboost(SETTINGS, blocks, label, enable_categorical=True)
        with pytest.raises(InvalidArgumentError, match=message):
            colocate(blocks, label=label)


def test_colocated_blocks_have_the_categories_of_all_locations(client: Client) -> None:
    blocks = [pd.DataFrame({"d": pd.Categorical(list(each))}) for each in ("ba", "cb")]
    with colocate(placed(client, blocks, (0, 1))) as rows:
        here = gather(rows.map(lambda rows: rows.parts["data"][0]))
    for block, mine in zip(here, blocks, strict=True):
        assert block["d"].cat.categories.tolist() == ["a", "b", "c"]
        assert block["d"].tolist() == mine["d"].tolist()
