"""XGBoost trained on blocks where they are, against its own module for Dask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("distributed")
pytest.importorskip("xgboost")

import dask.array as da
import xgboost
import xgboost.dask
from distributed import Client, wait
from sklearn.datasets import make_classification
from sklearn.metrics import roc_auc_score

from spliter import AlignmentError, InvalidArgumentError
from spliter_experiments.compare.engines.dask_meter import ClusterMeter
from tests.boosting_data import (
    SETTINGS,
    few_values,
    free,
    in_four,
    placed,
    same_predictions,
    train_xgboost,
)
from tests.dask_workers import workers_of

pytestmark = [pytest.mark.thorough, pytest.mark.backend("dask")]

PARAMS = {"objective": "binary:logistic", "max_depth": 4, "eta": 0.3, "nthread": 1}
ROUNDS = 15
TRAIN = 6000


@pytest.fixture(scope="module")
def points() -> tuple[Any, Any]:
    x, y = make_classification(9000, 12, n_informative=8, flip_y=0.05, random_state=3)
    return x.astype(np.float32), y


@pytest.fixture(scope="module")
def collections(client: Client, points: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return blocks of points, and their labels where the points are."""
    x, y = points
    table = da.from_array(np.column_stack([x, y])[:TRAIN], chunks=(100, -1)).persist()
    wait(table)
    labels = table[:, -1].persist()
    blocks = table[:, :-1].persist()
    wait([blocks, labels])
    return blocks, labels


def quality(booster: Any, points: tuple[Any, Any]) -> float:
    x, y = points
    return float(roc_auc_score(y[TRAIN:], booster.predict(xgboost.DMatrix(x[TRAIN:]))))


def test_as_good_as_its_own_front_end_with_fewer_tasks(
    client: Client, points: tuple[Any, Any], collections: tuple[Any, Any]
) -> None:
    workers = workers_of(client)
    with ClusterMeter(client) as meter:
        start = meter.reading()
        ours = train_xgboost(
            PARAMS, *collections, num_boost_round=ROUNDS, evaluate=True, locations=workers
        )
        ours_cost = meter.reading().since(start)
        start = meter.reading()
        matrix = xgboost.dask.DaskQuantileDMatrix(client, *collections)
        theirs = xgboost.dask.train(client, PARAMS, matrix, num_boost_round=ROUNDS)
        their_cost = meter.reading().since(start)
    assert ours.trainers == 2
    assert ours.empty == ()
    assert ours.booster.num_boosted_rounds() == ROUNDS
    losses = ours.history["train"]["logloss"]
    assert len(losses) == ROUNDS and losses[-1] < losses[0]
    assert {type(loss) for loss in losses} == {float}
    auc, their_auc = quality(ours.booster, points), quality(theirs["booster"], points)
    assert auc > 0.9
    assert abs(auc - their_auc) < 0.005 * their_auc
    # The lists of blocks and the trainers, two each, and labels that lay elsewhere.
    assert ours_cost.tasks <= 4 + ours.moved.blocks
    assert their_cost.tasks >= 60


@pytest.mark.parametrize("tree_method", ["hist", "approx"])
def test_blocks_weights_and_margins_are_used(tree_method: str) -> None:
    x = [np.array([[0.0], [1.0]]), np.empty((0, 1)), np.array([[0.0], [1.0]])]
    y = [np.array([0, 1]), np.empty(0), np.array([1, 0])]
    weight = [np.array([9.0, 9.0]), np.empty(0), np.array([1.0, 1.0])]
    params = {**PARAMS, "tree_method": tree_method, "min_child_weight": 0, "base_score": 0.5}
    trained = train_xgboost(params, x, y, weight=weight, num_boost_round=30)
    low, high = trained.booster.predict(xgboost.DMatrix(np.array([[0.0], [1.0]])))
    assert low < 0.2
    assert high > 0.8
    margin = [np.full(2, 5.0), np.empty(0), np.full(2, 5.0)]
    with_margin = train_xgboost(params, x, y, base_margin=margin, num_boost_round=1)
    without = train_xgboost(params, x, y, num_boost_round=1)
    assert with_margin.booster.get_dump() != without.booster.get_dump()
    assert trained.trainers == 1


def test_ranking_takes_whole_queries(client: Client) -> None:
    points = np.random.default_rng(0).normal(size=(400, 3))
    relevant = (points[:, 0] > 0).astype(int)
    rows = np.arange(400)
    x, relevance, whole, torn = in_four(client, points, relevant, rows // 10, rows % 10)
    params = {"objective": "rank:ndcg", "nthread": 1}
    trained = train_xgboost(params, x, relevance, qid=whole, num_boost_round=5)
    assert trained.trainers == 2
    scores = trained.booster.predict(xgboost.DMatrix(points))
    assert roc_auc_score(relevant, scores) > 0.99
    with pytest.raises(AlignmentError, match="at more than one location"):
        train_xgboost(params, x, relevance, qid=torn, num_boost_round=5)
    again = train_xgboost(params, x, relevance, qid=torn, num_boost_round=2, split_queries=True)
    assert again.booster.num_boosted_rounds() == 2


@pytest.mark.parametrize("kind", [np.asarray, pd.Series])
def test_text_as_labels_is_refused_with_the_name_of_the_column(kind: Any) -> None:
    x = [np.zeros((0, 1)), np.array([[0.0], [1.0]])]
    labels = [kind([])[:0], kind(["no", "yes"])]
    with pytest.raises(InvalidArgumentError, match=r"label must be numbers, got text such as 'no'"):
        train_xgboost(PARAMS, x, labels)
    with pytest.raises(InvalidArgumentError, match="weight must be numbers"):
        train_xgboost(PARAMS, x[1:], [np.zeros(2)], weight=labels[1:])


def refuse_on_second(prediction: Any, matrix: Any) -> tuple[Any, Any]:
    """Serve as an objective that one trainer fails in."""
    if xgboost.collective.get_rank() == 1:
        raise KeyError("the user's own error")
    return np.zeros(len(prediction)), np.ones(len(prediction))


def test_an_error_in_one_trainer_ends_all(client: Client, collections: tuple[Any, Any]) -> None:
    with pytest.raises((KeyError, xgboost.core.XGBoostError)):
        train_xgboost(PARAMS, *collections, obj=refuse_on_second)
    free(client)
    assert train_xgboost(PARAMS, *collections, num_boost_round=1).trainers == 2


def test_two_trainings_at_once_take_turns(client: Client, collections: tuple[Any, Any]) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as pool:
        runs = [
            pool.submit(train_xgboost, PARAMS, *collections, num_boost_round=3, timeout=120)
            for _ in range(2)
        ]
        assert [run.result(timeout=200).trainers for run in runs] == [2, 2]


def test_wrong_timeouts_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="at least 1 second"):
        train_xgboost(PARAMS, [np.ones((2, 1))], [np.ones(2)], timeout=0)


@pytest.mark.parametrize("tree_method", ["hist", "approx"])
def test_columns_are_as_xgboost_has_them(client: Client, tree_method: str) -> None:
    x, y = few_values()
    x[::7, 1] = -1.0
    columns: dict[str, Any] = {
        "missing": -1.0,
        "feature_names": ["a", "b", "c", "d"],
        "feature_types": ["q", "q", "q", "c"],
        "feature_weights": [1.0, 0.0, 2.0, 1.0],
        "enable_categorical": True,
    }
    params = {**SETTINGS, "tree_method": tree_method, "colsample_bynode": 0.5, "seed": 2}
    trained = train_xgboost(params, *in_four(client, x, y), **columns)
    make = xgboost.QuantileDMatrix if tree_method == "hist" else xgboost.DMatrix
    whole = make(x, y, **columns)
    theirs = xgboost.train(params, whole)
    assert trained.trainers == 2
    same_predictions(trained, theirs, whole)
    assert trained.booster.feature_names == ["a", "b", "c", "d"]
    assert trained.booster.feature_types == ["q", "q", "q", "c"]
    assert "b" not in trained.booster.get_score(), "a weight of 0 is never sampled"


@pytest.mark.parametrize("at", [(0, 1, 0, 1), (1, 1, 1, 1)], ids=["everywhere", "elsewhere"])
@pytest.mark.parametrize("tree_method", ["hist", "approx"])
def test_validation_sets_stop_it_as_early_as_in_memory(
    client: Client, tree_method: str, at: Sequence[int]
) -> None:
    x, y = few_values()
    valid_x, valid_y = x[::-1][:200].copy(), np.random.default_rng(0).permutation(y[:200])
    weight = np.linspace(0.5, 1.5, 200)
    # The rows to train on are at one worker in the second case, those to validate with at others.
    trained_at = (0, 1, 0, 1) if at[0] == 0 else (0, 0, 0, 0)
    data, label = in_four(client, x, y, at=trained_at)
    valid = {
        "data": placed(client, np.split(valid_x, 4), at),
        "label": placed(client, np.split(valid_y, 4), at),
        "weight": weight,
    }
    params = {**SETTINGS, "tree_method": tree_method, "eval_metric": "logloss"}
    options: dict[str, Any] = {"num_boost_round": 40, "early_stopping_rounds": 3}
    trained = train_xgboost(params, data, label, evals=[(valid, "valid")], evaluate=True, **options)
    assert trained.trainers == 2
    assert trained.moved.blocks == 0
    whole = xgboost.DMatrix(x, y)
    held = xgboost.DMatrix(valid_x, valid_y, weight=weight)
    history: dict[str, Any] = {}
    theirs = xgboost.train(
        params,
        whole,
        evals=[(whole, "train"), (held, "valid")],
        evals_result=history,
        verbose_eval=False,
        **options,
    )
    assert list(trained.history) == ["train", "valid"]
    assert trained.booster.best_iteration == theirs.best_iteration < 36
    for name, losses in history.items():
        np.testing.assert_allclose(trained.history[name]["logloss"], losses["logloss"], atol=1e-4)
    same_predictions(trained, theirs, whole)


def test_the_model_of_a_location_without_rows_is_not_returned(client: Client) -> None:
    x, y = few_values()
    frame = pd.DataFrame(x, columns=list("abcd"))
    data = placed(client, [frame.iloc[:0], frame.iloc[:300], frame.iloc[300:]], (0, 1, 1))
    label = placed(client, [y[:0], y[:300], y[300:]], (0, 1, 1))
    trained = train_xgboost(SETTINGS, data, label, evaluate=True)
    assert trained.trainers == 2
    assert trained.booster.feature_names == list("abcd")
    whole = xgboost.DMatrix(frame, y)
    same_predictions(trained, xgboost.train(SETTINGS, whole), whole)


@pytest.mark.parametrize("on_dask", [False, True], ids=["in process", "at two"])
def test_no_rows_at_all_are_refused(client: Client, on_dask: bool) -> None:
    x, y = few_values()
    full, empty = ([np.split(each[:rows], 2) for each in (x, y)] for rows in (600, 0))
    if on_dask:
        full, empty = ([placed(client, each, (0, 1)) for each in one] for one in (full, empty))
    with pytest.raises(InvalidArgumentError, match="no rows in data: all 2 blocks are empty"):
        train_xgboost(SETTINGS, *empty)
    valid = {"data": empty[0], "label": empty[1]}
    with pytest.raises(InvalidArgumentError, match="no rows in set 1 of evals"):
        train_xgboost(SETTINGS, *full, evals=[(valid, "valid")])


def test_linear_boosters_are_refused_as_by_its_own_front_end(
    client: Client, collections: tuple[Any, Any]
) -> None:
    params = {"booster": "gblinear"}
    with pytest.raises(NotImplementedError, match="gblinear"):
        xgboost.dask.train(client, params, xgboost.dask.DaskDMatrix(client, *collections))
    with pytest.raises(InvalidArgumentError, match="gblinear"):
        train_xgboost(params, *collections)


@pytest.mark.parametrize(
    "evals",
    [
        [([np.ones((2, 1))], "valid")],
        [({"data": [np.ones((2, 1))]}, "valid")],
        [({"data": [np.ones((2, 1))], "label": [np.ones(2)], "labels": None}, "valid")],
        [({"data": [np.ones((2, 1))], "label": [np.ones(2)]}, "train")],
    ],
)
def test_wrong_sets_to_evaluate_are_refused(evals: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"evals must be|different names"):
        train_xgboost({}, [np.ones((2, 1))], [np.ones(2)], evals=evals, evaluate=True)
