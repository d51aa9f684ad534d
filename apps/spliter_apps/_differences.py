"""Even out differences between the blocks of a collection, or refuse them: for blocks of any kind.

Every application passes its blocks through here before it uses them: columns of other names or in
another order are refused, and so are masked elements; numbers in the other byte order are converted
for libraries that do not read them. Needs NumPy only.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, TypeAlias

import numpy as np

from spliter import InvalidArgumentError
from spliter._reading.column_names import same_columns_advice

Names: TypeAlias = tuple[Hashable, ...] | None
"""Names of the columns of a block; ``None`` if it has none, as an array."""


def column_names(block: Any) -> Names:
    """Return the names of a block's columns, or ``None`` if they are known by position only.

    Returns
    -------
    tuple or None
        ``None`` also for the numbers that pandas gives to unnamed columns.

    Examples
    --------
    >>> import pandas as pd
    >>> column_names(pd.DataFrame({"a": [1], "b": [2]})), column_names(pd.DataFrame([[1, 2]]))
    (('a', 'b'), None)
    """
    if type(block) is np.ndarray:
        return None  # fast path: most blocks, and there may be very many
    if hasattr(block, "iloc") and block.ndim == 1:
        return None if block.name is None else (block.name,)
    columns = getattr(block, "column_names", None)  # pyarrow
    if columns is None:
        columns = getattr(block, "columns", None)
    if columns is None and hasattr(block, "indexes") and len(block.dims) == 2:  # xarray
        columns = block.indexes.get(block.dims[1])
    names = None if columns is None else tuple(columns)
    return None if names == tuple(range(len(names or ()))) else names


def check_same_columns(names: Names, others: Names, of_what: str = "all blocks") -> None:
    """Reject columns of other names, or in another order; the error shows both.

    Examples
    --------
    >>> check_same_columns(("a", "b"), ("a", "b"))
    """
    if names != others:
        raise InvalidArgumentError(
            f"{of_what} must have the same columns in the same order, got {_shown(names)} and "
            f"{_shown(others)}; {same_columns_advice(names, others)}"
        )


def check_same_number(mine: int | None, its: int | None, of_what: str = "all blocks") -> None:
    """Reject another number of columns."""
    if mine != its:
        raise InvalidArgumentError(
            f"{of_what} must have the same number of columns, got {mine} and {its}"
        )


def _shown(names: Names) -> str:
    return "columns without names" if names is None else str(list(names))


class SameColumns:
    """Compares the names of the columns of blocks with those of the first one.

    names: Names of the columns of each member of earlier blocks.

    names: Names of the columns of each member; ``None`` before the first block.

    Examples
    --------
    >>> import pandas as pd
    >>> columns = SameColumns()
    >>> [len(block) for block in map(columns.checked, [pd.DataFrame({"a": [1], "b": [2]})])]
    [1]
    >>> columns.names
    [('a', 'b')]
    """

    def __init__(self, names: list[Names] | None = None) -> None:
        self.names = names

    def checked(self, block: Any) -> Any:
        """Return a block, or a tuple of aligned ones, as it is."""
        members = block if isinstance(block, tuple) else (block,)
        self.add([column_names(member) for member in members])
        return block

    def add(self, names: list[Names] | None) -> None:
        """Compare the names of other blocks, ``None`` if there are none."""
        if self.names is None:
            self.names = names
        for mine, its in zip(self.names or (), names or (), strict=False):
            check_same_columns(mine, its)


def refuse_masked(values: Any, what: str) -> None:
    """Reject masked elements: most libraries use the values behind the mask.

    Examples
    --------
    >>> refuse_masked(np.ma.masked_less([1, 2], 0), "y")
    """
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise InvalidArgumentError(
            f"{what}: masked elements are not supported; fill them, or remove their rows"
        )


def native(block: Any) -> Any:
    """Return a block whose numbers are in the byte order of this machine.

    Examples
    --------
    >>> native(np.array([1.0], ">f8")).dtype.isnative
    True
    """
    if isinstance(block, np.ndarray):
        return block if block.dtype.isnative else block.astype(block.dtype.newbyteorder("="))
    if not hasattr(block, "iloc"):
        return block
    dtypes = {None: block.dtype} if block.ndim == 1 else dict(block.dtypes)
    swapped = {
        name: dtype.newbyteorder("=")
        for name, dtype in dtypes.items()
        if isinstance(dtype, np.dtype) and not dtype.isnative
    }
    if not swapped:
        return block
    return block.astype(swapped if block.ndim == 2 else swapped[None])
