"""Make XGBoost's matrices from the rows at a location, block by block if XGBoost supports it.

XGBoost encodes the categories of a column for each block separately and trains on the codes. So
the blocks of all locations need the same categories in the same order:
:func:`local_categories` collects them, :func:`merge_categories` merges them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from spliter import BackendNotUsableError, InvalidArgumentError
from spliter_apps.boosting.colocated import DATA, QUERY, LocalRows

Categories: TypeAlias = Mapping[str, Sequence[Any]]
"""Categories of each categorical column, by its name."""


@dataclass(frozen=True)
class Features:
    """Column settings passed to XGBoost, under its own names.

    Parameters
    ----------
    missing : float or None
        Value that marks missing entries; ``None`` for NaN.
    feature_names, feature_types : sequence of str or None
        One for each column; ``None`` to take them from DataFrames.
    feature_weights : ndarray, shape (n_features,), or None
        Weight of each column when columns are sampled.
    enable_categorical : bool
        Whether DataFrames may have categorical columns.
    """

    missing: float | None = None
    feature_names: Sequence[str] | None = None
    feature_types: Sequence[str] | None = None
    feature_weights: Any = None
    enable_categorical: bool = False

    @property
    def of_columns(self) -> dict[str, Any]:
        """The settings passed with each block."""
        given = {
            "feature_names": self.feature_names,
            "feature_types": self.feature_types,
            "feature_weights": self.feature_weights,
        }
        return {name: value for name, value in given.items() if value is not None}


def make_matrix(
    rows: LocalRows, params: Mapping[str, Any], features: Features, ref: Any = None
) -> Any:
    """Make XGBoost's matrix of the rows of one location.

    Parameters
    ----------
    rows : LocalRows
        The rows; blocks may be empty.
    params : mapping of str to object
        Parameters of the training, including ``nthread``.
    features : Features
        Column settings.
    ref : xgboost.DMatrix, optional
        Training matrix, if the rows are a validation set.

    Returns
    -------
    xgboost.DMatrix
        A ``QuantileDMatrix`` if trees are grown by histograms.
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
    if type(block) is not np.ndarray:
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
    """Return an empty set of rows with the same columns.

    Parameters
    ----------
    rows : LocalRows
        At the same location.

    Returns
    -------
    LocalRows
        One block of features without rows.
    """
    return dataclasses.replace(rows, parts={DATA: [rows.parts[DATA][0][:0]]}, positions=(0,))


def local_categories(*several: LocalRows | None) -> Categories:
    """Return the categories of all columns in all blocks of a location; the body of a task.

    Parameters
    ----------
    *several : LocalRows or None
        Training and validation rows.

    Returns
    -------
    mapping of str to list
        In order of appearance.
    """
    return merge_categories(
        {
            name: block[name].cat.categories.tolist()
            for name in block.columns
            if hasattr(block[name], "cat")
        }
        for rows in several
        if rows is not None
        for block in rows.parts[DATA]
        if hasattr(block, "iloc")
    )


def merge_categories(several: Iterable[Categories]) -> Categories:
    """Merge categories, column by column.

    Parameters
    ----------
    several : iterable of mapping of str to sequence
        Categories of blocks, or of locations.

    Returns
    -------
    mapping of str to list
        Without duplicates, in order of appearance.

    Examples
    --------
    >>> merge_categories([{"size": ["s", "m"]}, {"size": ["m", "l"]}])
    {'size': ['s', 'm', 'l']}
    """
    merge_rows: dict[str, dict[Any, None]] = {}
    for categories in several:
        for column, values in categories.items():
            merge_rows.setdefault(column, {}).update(dict.fromkeys(values))
    return {column: list(values) for column, values in merge_rows.items()}


def with_categories(rows: LocalRows, categories: Categories) -> LocalRows:
    """Return the same rows, with the same categories in every block.

    Parameters
    ----------
    rows : LocalRows
        The rows of one location.
    categories : mapping of str to sequence
        Categories of all locations.

    Returns
    -------
    LocalRows
        Blocks that already have these categories are not copied.
    """
    blocks = [_with_categories(block, categories) for block in rows.parts[DATA]]
    return dataclasses.replace(rows, parts={**rows.parts, DATA: blocks})


def _with_categories(block: Any, categories: Categories) -> Any:
    columns = categories.keys() & set(getattr(block, "columns", ()))
    other = {
        name: block[name].cat.set_categories(categories[name])
        for name in columns
        if block[name].cat.categories.tolist() != categories[name]
    }
    return block.assign(**other) if other else block


def check_numbers(rows: LocalRows) -> None:
    """Refuse labels and other columns that are text, which XGBoost reports from its C++ code.

    Parameters
    ----------
    rows : LocalRows
        The rows of one location.

    Raises
    ------
    InvalidArgumentError
        Names the column.
    """
    for name in rows.parts.keys() - {DATA}:
        for block in rows.parts[name]:
            for value in np.asarray(block[:1]).ravel().tolist():
                if isinstance(value, str | bytes):
                    raise InvalidArgumentError(
                        f"{name} must be numbers, got text such as {value!r}; encode it first, as "
                        "by sklearn.preprocessing.LabelEncoder"
                    )


def import_xgboost() -> Any:
    """Return the module, or raise BackendNotUsableError if it cannot be imported."""
    try:
        import xgboost
    except ImportError as error:
        raise BackendNotUsableError(
            f"XGBoost is not usable here: {error}; pip install xgboost (or xgboost-cpu)"
        ) from error
    return xgboost
