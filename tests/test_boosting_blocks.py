"""Blocks that differ, in columns, categories, byte order or kind: boosting is right, or refuses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.metrics import roc_auc_score

pytest.importorskip("distributed")
pytest.importorskip("xgboost")

import xgboost
from distributed import Client

from spliter import InvalidArgumentError, gather
from spliter_apps.boosting import LocalRows, colocate
from tests.boosting_data import (
    FRAME,
    LABELS,
    METHODS,
    N_ROWS,
    PLACES,
    SETTINGS,
    halves,
    in_two,
    placed,
    same_predictions,
    train_xgboost,
)

pytestmark = [pytest.mark.thorough, pytest.mark.backend("dask")]


def other_block(kind: str) -> Any:
    """Return the second half with columns that differ from those of the first one."""
    block = halves(FRAME)[1]
    return {
        "order": block[["b", "a", "c", "d"]],
        "names": block.rename(columns={"d": "e"}),
        "fewer": block[["a", "b", "c"]],
        "array": block.to_numpy(),
    }[kind]


@PLACES
@pytest.mark.parametrize("kind", ["order", "names", "fewer", "array"])
def test_other_columns_are_refused_with_both_lists(
    client: Client, kind: str, at: Sequence[int]
) -> None:
    first, labels = halves(FRAME)[0], halves(LABELS)
    data = placed(client, [first, other_block(kind)], at)
    label = placed(client, labels, at)
    both = "columns without names" if kind == "array" else str(list(other_block(kind).columns))
    with pytest.raises(InvalidArgumentError) as told:
        train_xgboost(SETTINGS, data, label)
    assert "blocks of data" in str(told.value)
    assert both in str(told.value) and "['a', 'b', 'c', 'd']" in str(told.value)
    with pytest.raises(InvalidArgumentError, match="blocks of data"):
        colocate(data, label=label)


@PLACES
def test_another_number_of_columns_is_refused(client: Client, at: Sequence[int]) -> None:
    x, y = halves(FRAME.to_numpy()), halves(LABELS)
    data, label = placed(client, [x[0], x[1][:, :3]], at), placed(client, y, at)
    with pytest.raises(InvalidArgumentError, match="same number of columns, got 4 and 3"):
        train_xgboost(SETTINGS, data, label)


def test_sets_to_evaluate_with_other_columns_are_refused(client: Client) -> None:
    data, label = in_two(client, FRAME, LABELS)
    (other,) = in_two(client, FRAME[["b", "a", "c", "d"]])
    valid = {"data": other, "label": label}
    with pytest.raises(InvalidArgumentError, match="in the same order"):
        train_xgboost(SETTINGS, data, label, evals=[(valid, "valid")])


def test_outputs_in_another_order_are_refused(client: Client) -> None:
    outputs = halves(pd.DataFrame({"low": LABELS, "high": 10.0 + LABELS}))
    data, _ = in_two(client, FRAME, LABELS)
    label = placed(client, [outputs[0], outputs[1][["high", "low"]]], (0, 1))
    with pytest.raises(InvalidArgumentError, match="blocks of label"):
        train_xgboost({"objective": "reg:squarederror", "nthread": 1}, data, label)


@METHODS
@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csc_array, sparse.coo_array])
def test_sparse_blocks(client: Client, tree_method: str, kind: Any) -> None:
    x = FRAME.to_numpy()
    data = placed(client, [kind(block) for block in halves(x)], (0, 1))
    (label,) = in_two(client, LABELS)
    params = {**SETTINGS, "tree_method": tree_method}
    trained = train_xgboost(params, data, label)
    whole = xgboost.DMatrix(sparse.csr_array(x), LABELS)
    same_predictions(trained, xgboost.train(params, whole), whole)


@METHODS
@pytest.mark.parametrize("as_frame", [False, True])
def test_numbers_of_the_other_byte_order(client: Client, tree_method: str, as_frame: bool) -> None:
    weight, margin = np.linspace(0.5, 1.5, N_ROWS), np.linspace(-1, 1, N_ROWS)
    swapped: list[Any] = [each.astype(">f8") for each in (FRAME.to_numpy(), LABELS, weight, margin)]
    if as_frame:
        swapped[0] = pd.DataFrame(swapped[0], columns=list("abcd"))
        swapped[1:] = [pd.Series(each) for each in swapped[1:]]
    data, label, *others = in_two(client, *swapped)
    columns: dict[str, Any] = dict(zip(["weight", "base_margin"], others, strict=True))
    params = {**SETTINGS, "tree_method": tree_method}
    valid = {"data": data, "label": label, **columns}
    trained = train_xgboost(params, data, label, **columns, evals=[(valid, "valid")])
    whole = xgboost.DMatrix(FRAME.to_numpy(), LABELS, weight=weight, base_margin=margin)
    history: dict[str, Any] = {}
    theirs = xgboost.train(
        params, whole, evals=[(whole, "valid")], evals_result=history, verbose_eval=False
    )
    plain = xgboost.DMatrix(FRAME if as_frame else FRAME.to_numpy())
    same_predictions(trained, theirs if not as_frame else named(theirs), plain)
    losses = trained.history["valid"]["logloss"]
    np.testing.assert_allclose(losses, history["valid"]["logloss"], atol=1e-4)


def named(booster: Any) -> Any:
    booster.feature_names = list("abcd")
    return booster


def native_groups(rows: LocalRows) -> tuple[list[bool], list[int], Any]:
    blocks = [block for blocks in rows.parts.values() for block in blocks]
    return [block.dtype.isnative for block in blocks], rows.group_sizes().tolist(), blocks[-1]


def test_colocated_numbers_of_the_other_byte_order(client: Client) -> None:
    queries = np.arange(N_ROWS) // 50
    data, qid = in_two(client, FRAME.to_numpy().astype(">f4"), queries.astype(">i8"))
    with colocate(data, qid=qid, label=LABELS.astype(">i4")) as rows:
        found = gather(rows.map(native_groups))
    assert [(native, sizes) for native, sizes, _ in found] == [([True] * 3, [50] * 6)] * 2
    np.testing.assert_array_equal(np.concatenate([labels for *_, labels in found]), LABELS)


def test_queries_in_frames(client: Client) -> None:
    frames = [pd.DataFrame({"q": [2, 1, 2]}), pd.DataFrame({"q": [1]})]
    data = placed(client, [np.zeros((3, 1)), np.ones((1, 1))], (0, 0))
    with colocate(data, qid=placed(client, frames, (0, 0))) as rows:
        (here,) = gather(rows.map(lambda rows: rows))
    assert here.sorted_by_query().group_sizes().tolist() == [2, 2]
    pairs = placed(client, [frame.assign(r=0) for frame in frames], (0, 0))
    with pytest.raises(InvalidArgumentError, match="qid must be one column, got 2"):
        colocate(data, qid=pairs)


COLUMNS = ["label", "weight", "base_margin", "label_lower_bound", "label_upper_bound", "qid"]


@pytest.mark.parametrize("name", ["data", *COLUMNS])
def test_masked_elements_are_refused(client: Client, name: str) -> None:
    masked: dict[str, Any] = {"data": FRAME.to_numpy(), "label": LABELS}
    values = FRAME.to_numpy() if name == "data" else np.arange(N_ROWS) // 2 + 1
    masked[name] = np.ma.array(values, mask=values < 0)
    masked[name][-1] = np.ma.masked
    given: dict[str, Any] = dict(zip(masked, in_two(client, *masked.values()), strict=True))
    with pytest.raises(InvalidArgumentError, match=f"block 1 of {name}: masked"):
        train_xgboost(SETTINGS, **given)
    with pytest.raises(InvalidArgumentError, match=f"block 1 of {name}: masked"):
        colocate(given.pop("data"), **given)
    valid = dict(zip(masked, in_two(client, *masked.values()), strict=True))
    data, label = in_two(client, FRAME.to_numpy(), LABELS)
    with pytest.raises(InvalidArgumentError, match="masked"):
        train_xgboost(SETTINGS, data, label, evals=[(valid, "valid")])


def test_masked_elements_in_memory_are_refused(client: Client) -> None:
    (data,) = in_two(client, FRAME)
    with pytest.raises(InvalidArgumentError, match="masked"):
        train_xgboost(SETTINGS, data, np.ma.masked_equal(LABELS, 1))
    weights = np.ma.masked_equal([1.0, 0.0, 2.0, 1.0], 0.0)
    with pytest.raises(InvalidArgumentError, match="feature_weights: masked"):
        train_xgboost(SETTINGS, data, LABELS, feature_weights=weights)


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("nullable", [False, True])
def test_missing_values_are_refused_but_in_features(
    client: Client, name: str, nullable: bool
) -> None:
    values = pd.Series(np.arange(N_ROWS) // 2 + 1.0)
    values[N_ROWS - 1] = np.nan
    column: Any = values.astype("Int64") if nullable else values.to_numpy()
    data, label, given = in_two(client, FRAME, LABELS, column)
    columns: dict[str, Any] = {"label": label, name: given}
    with pytest.raises(InvalidArgumentError, match=f"{name} has missing values"):
        train_xgboost(SETTINGS, data, **columns)


def test_text_and_tables_are_refused(client: Client) -> None:
    label = placed(client, halves(LABELS), (0, 1))
    text = placed(client, halves(FRAME.assign(d=LABELS.astype(str))), (0, 1))
    one_only = placed(client, [halves(FRAME)[0], halves(FRAME.assign(d="x"))[1]], (0, 1))
    for data in (text, one_only):
        with pytest.raises(InvalidArgumentError, match="data must be numbers, got text such as"):
            train_xgboost(SETTINGS, data, label)
    pyarrow = pytest.importorskip("pyarrow")
    tables = [pyarrow.Table.from_pandas(block, preserve_index=False) for block in halves(FRAME)]
    with pytest.raises(InvalidArgumentError, match=r"got Table; convert them with \.to_pandas"):
        train_xgboost(SETTINGS, placed(client, tables, (0, 1)), label)


@METHODS
@pytest.mark.parametrize("at", [(0, 0, 0), (0, 1, 1)], ids=["at one", "at two"])
@pytest.mark.parametrize("kind", ["numbers", "categories", "numbers beside categories"])
def test_blocks_without_rows_may_be_of_another_kind(
    client: Client, tree_method: str, at: Sequence[int], kind: str
) -> None:
    categories = FRAME.assign(d=FRAME["d"].astype(int).astype("category"))
    frame = categories if kind == "categories" else FRAME
    # Without rows, pandas makes columns of objects.
    objects = pd.DataFrame(columns=list("abcd"))
    blocks = [categories[:0] if "beside" in kind else objects, *halves(frame)]
    labels = [pd.Series([], dtype=object).to_numpy(), *halves(LABELS)]
    data, label = placed(client, blocks, at), placed(client, labels, at)
    params = {**SETTINGS, "tree_method": tree_method}
    trained = train_xgboost(params, data, label, enable_categorical=True)
    whole = xgboost.DMatrix(frame, LABELS, enable_categorical=True)
    assert trained.trainers == len(set(at))
    same_predictions(trained, xgboost.train(params, whole), whole)


@METHODS
def test_dense_blocks_without_rows_beside_sparse_ones(client: Client, tree_method: str) -> None:
    x = FRAME.to_numpy()
    blocks = [np.empty((0, 4), object), sparse.csr_array(x)]
    data, label = placed(client, blocks, (0, 1)), placed(client, [LABELS[:0], LABELS], (0, 1))
    params = {**SETTINGS, "tree_method": tree_method}
    trained = train_xgboost(params, data, label)
    whole = xgboost.DMatrix(sparse.csr_array(x), LABELS)
    same_predictions(trained, xgboost.train(params, whole), whole)


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
