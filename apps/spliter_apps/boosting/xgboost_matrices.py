"""Make XGBoost's matrices from the rows at a location, block by block if XGBoost supports it.

XGBoost trains on the numbers of categories. It takes these from DataFrames only if each location
has rows of each set, so trainers get the numbers (:func:`with_codes`), and the finished booster the
categories (:func:`remember_categories`).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spliter import BackendNotUsableError, InvalidArgumentError
from spliter.backend import is_sparse, take_rows
from spliter_apps.boosting.local_rows import DATA, QUERY, Categories, Columns, LocalRows


@dataclass(frozen=True)
class Features:
    """Column settings passed to XGBoost, under its own names.

    missing: Value that marks missing entries; ``None`` for NaN.
    feature_names, feature_types: One for each column; ``None`` to take them from DataFrames.
    feature_weights (ndarray, shape (n_features,), or None): Weight of each column when columns are
        sampled.
    enable_categorical: Whether DataFrames may have categorical columns.
    """

    missing: float | None = None
    feature_names: Sequence[str] | None = None
    feature_types: Sequence[str] | None = None
    feature_weights: Any = None
    enable_categorical: bool = False

    def typed(self, columns: Columns) -> Features:
        """Return the settings for columns whose categories are replaced by numbers."""
        if self.feature_types is not None or not columns.categories:
            return self
        names = columns.names or range(columns.width)
        types = ["c" if name in columns.categories else "q" for name in names]
        return dataclasses.replace(self, feature_types=types)

    @property
    def names_and_types(self) -> dict[str, Any]:
        """The settings of each column."""
        given = {"feature_names": self.feature_names, "feature_types": self.feature_types}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def of_columns(self) -> dict[str, Any]:
        """The settings passed with each block."""
        if self.feature_weights is None:
            return self.names_and_types
        return {**self.names_and_types, "feature_weights": self.feature_weights}


def make_matrix(
    rows: LocalRows, params: Mapping[str, Any], features: Features, ref: Any = None
) -> Any:
    """Make XGBoost's matrix of the rows of one location, of which there may be none.

    `ref` is the training matrix if the rows are a validation set. It is a ``QuantileDMatrix`` if
    trees are grown by histograms.
    """
    xgboost = import_xgboost()
    full = _with_aligned_blocks(rows.without_empty_blocks())
    if QUERY in full.parts:
        full = full.sorted_by_query()
    settings = {
        "nthread": params["nthread"],
        "missing": features.missing,
        "enable_categorical": features.enable_categorical,
    }
    if not _by_histograms(params):
        return xgboost.DMatrix(**full.concatenated(), **features.of_columns, **settings)
    bins = params.get("max_bin")
    if not len(full):
        nothing = full.parts[DATA][0]
        return xgboost.QuantileDMatrix(
            nothing, **features.of_columns, **settings, max_bin=bins, ref=ref
        )
    blocks = _block_after_block(full, features.of_columns)
    return xgboost.QuantileDMatrix(blocks, **settings, max_bin=bins, ref=ref)


def _with_aligned_blocks(rows: LocalRows) -> LocalRows:
    """Copy unaligned arrays, such as those received over the network: XGBoost refuses them."""
    parts = {name: list(map(_aligned, blocks)) for name, blocks in rows.parts.items()}
    return dataclasses.replace(rows, parts=parts)


def _aligned(block: Any) -> Any:
    if is_sparse(block):
        return block.tocsr()  # which XGBoost aligns itself
    if not isinstance(block, np.ndarray):
        return block
    # NumPy regards arrays without elements as aligned.
    return np.require(block, requirements="A") if block.size else block.copy()


def _by_histograms(params: Mapping[str, Any]) -> bool:
    return params.get("tree_method", "hist") in {"hist", "auto"}


def _block_after_block(rows: LocalRows, columns: Mapping[str, Any]) -> Any:
    """Return an XGBoost ``DataIter`` over the blocks, which avoids concatenating them."""
    xgboost = import_xgboost()

    class Blocks(xgboost.DataIter):  # type: ignore[misc, name-defined]  # known when it runs
        def __init__(self) -> None:
            self._at = 0
            super().__init__(release_data=True)

        def next(self, input_data: Any) -> bool:
            if self._at == len(rows.parts[DATA]):
                return False
            block = {name: blocks[self._at] for name, blocks in rows.parts.items()}
            input_data(**block, **columns)
            self._at += 1
            return True

        def reset(self) -> None:
            self._at = 0

    return Blocks()


def empty_like(rows: LocalRows) -> LocalRows:
    """Return an empty set of rows with the same columns: one block of features without rows."""
    nothing = take_rows(rows.parts[DATA][0], slice(0))
    return dataclasses.replace(rows, parts={DATA: [nothing]}, positions=(0,))


def with_codes(rows: LocalRows, categories: Categories) -> LocalRows:
    """Replace categories by their numbers, which XGBoost also takes where there are no rows.

    Missing values become NaN.
    """
    if not categories:
        return rows
    blocks = [_with_codes(block, categories) for block in rows.parts[DATA]]
    return dataclasses.replace(rows, parts={**rows.parts, DATA: blocks})


def _with_codes(block: Any, categories: Categories) -> Any:
    block = block.copy(deep=False)
    for name in categories:
        codes = block[name].cat.codes.to_numpy()
        block[name] = np.where(codes < 0, np.nan, codes).astype(np.float32)
    return block


def remember_categories(booster: Any, rows: LocalRows, features: Features) -> None:
    """Add the categories to a booster trained on their numbers, in place.

    With them it predicts for DataFrames whose categories have another order, as a booster that was
    trained on DataFrames. `rows` have at least one row and the categories of all locations; no
    other trainers may be connected.
    """
    xgboost = import_xgboost()
    head = rows.without_empty_blocks().parts[DATA][0].iloc[:1]
    matrix = xgboost.DMatrix(head, [0.0], enable_categorical=True, **features.names_and_types)
    example = _model(xgboost.train({"nthread": 1}, matrix, 1))
    if "cats" in _inner(example):  # from XGBoost 3.1 on
        config, model = booster.save_config(), _model(booster)
        _inner(model)["cats"] = _inner(example)["cats"]
        booster.load_model(bytearray(json.dumps(model), "utf-8"))
        booster.load_config(config)
    booster.feature_types = matrix.feature_types


def _model(booster: Any) -> Any:
    """Return a booster in XGBoost's JSON format."""
    return json.loads(booster.save_raw("json"))


def _inner(model: Any) -> Any:
    """Return the trees of a model and what belongs to them; "dart" wraps them once more."""
    booster = model["learner"]["gradient_booster"]
    return booster.get("gbtree", booster)["model"]


def check_values(rows: LocalRows) -> None:
    """Refuse values that XGBoost reports from its C++ code, or uses as they are.

    Of labels and other values that are not features, text and missing values are refused; of all,
    tables of another library than pandas.
    """
    for name, blocks in rows.parts.items():
        for block in blocks:
            if hasattr(type(block), "to_pandas") and not hasattr(block, "iloc"):
                raise InvalidArgumentError(
                    f"blocks of {name} must be arrays, sparse matrices or of pandas, got "
                    f"{type(block).__name__}; convert them with .to_pandas()"
                )
            _check_numbers(name, block)


def _check_numbers(name: str, block: Any) -> None:
    if is_sparse(block):
        return  # XGBoost refuses those that are not features
    if hasattr(block, "select_dtypes"):
        block = block.select_dtypes(exclude="category")
    for value in np.asarray(block[:1]).ravel().tolist():
        if isinstance(value, str | bytes):
            raise InvalidArgumentError(
                f"{name} must be numbers, got text such as {value!r}; encode it first, as by "
                "sklearn.preprocessing.LabelEncoder"
            )
    if name != DATA and _has_missing(block):
        raise InvalidArgumentError(f"{name} has missing values; fill them, or remove their rows")


def _has_missing(block: Any) -> bool:
    if hasattr(block, "isna"):
        return bool(block.isna().to_numpy().any())
    values = np.asarray(block)
    return bool((values != values).any())  # noqa: PLR0124  # NaN


def import_xgboost() -> Any:
    """Return the module, or raise BackendNotUsableError if it cannot be imported."""
    try:
        import xgboost
    except ImportError as error:
        raise BackendNotUsableError(
            f"XGBoost is not usable here: {error}; pip install xgboost (or xgboost-cpu)"
        ) from error
    return xgboost
