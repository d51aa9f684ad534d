"""How the suites of applications make collections on an engine, and read those it made."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse

from spliter import Split


def cut(array: Any, rows: Sequence[int]) -> list[Any]:
    """Cut an array or a DataFrame into blocks of these many rows."""
    bounds = [0, *accumulate(rows)]
    assert bounds[-1] == len(array)
    return [array[start:stop] for start, stop in pairwise(bounds)]


def record_closed(monkeypatch: pytest.MonkeyPatch) -> list[Split]:
    """Return a list that gets every Split that is closed from now on."""
    closed: list[Split] = []
    close = Split.close

    def closing(parts: Split) -> None:
        closed.append(parts)
        close(parts)

    monkeypatch.setattr(Split, "close", closing)
    return closed


class EngineCollections(ABC):
    """What each engine says about its collections."""

    @abstractmethod
    def collection(self, array: npt.NDArray[Any], rows: Sequence[int]) -> Any:
        """Return an array of any number of axes as a collection cut along its rows."""

    @abstractmethod
    def blocks(self, blocks: Sequence[Any]) -> Any:
        """Return blocks of any kind as a collection."""

    def frames(self, frame: Any, rows: Sequence[int]) -> Any:
        """Return a DataFrame or Series as a collection cut along its rows."""
        return self.blocks(cut(frame, rows))

    def gathered(self, collection: Any) -> Any:
        """Return a collection that the engine has made as one array."""
        return collection.compute()

    def heights(self, collection: Any) -> list[int]:
        """Return the numbers of rows of the blocks of a collection that the engine has made."""
        return list(collection.chunks[0])


class ListsOfBlocks(EngineCollections):
    """Lists in this process."""

    def collection(self, array: npt.NDArray[Any], rows: Sequence[int]) -> Any:
        return cut(array, rows)

    def blocks(self, blocks: Sequence[Any]) -> Any:
        return list(blocks)

    def gathered(self, collection: Any) -> Any:
        is_sparse = scipy.sparse.issparse(collection[0])
        return (scipy.sparse.vstack if is_sparse else np.concatenate)(collection)

    def heights(self, collection: Any) -> list[int]:
        return [block.shape[0] for block in collection]
