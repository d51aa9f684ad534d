"""Rows with their labels, weights and queries, put together for each location.

There is one partition at each location, as distributed boosting wants one trainer there. What a
trainer gets are the blocks themselves, in the order of the collection, by name::

    collection   X0 X1 X2 X3     location A: data [X0 X2]  label [y0 y2]
                 y0 y1 y2 y3     location B: data [X1 X3]  label [y1 y3]
                                 location C: empty
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from spliter import (
    AlignmentError,
    InvalidArgumentError,
    Location,
    Movement,
    Partition,
    Split,
    gather,
    split,
)
from spliter.backend import concatenate, count_rows
from spliter_apps._row_values import block_like, check_columns

DATA = "data"
"""Name of the features among the parts."""

QUERY = "qid"
"""Name of the column that says which query a row belongs to."""


@dataclass(frozen=True)
class LocalRows:
    """The rows of one location, where they are.

    Parameters
    ----------
    parts : mapping of str to list of block
        Under ``"data"`` and each further name the blocks, in the order of the collection.
    positions : tuple of int
        Number of each block in the collection.
    number, locations : int
        Which of how many locations with rows this is.
    threads : int
        Tasks that this location runs at once: the cores that a trainer may use.

    Examples
    --------
    >>> import numpy as np
    >>> rows = LocalRows({"data": [np.ones((2, 3)), np.ones((1, 3))]}, (0, 2), 0, 1, 4)
    >>> len(rows), rows.concatenated()["data"].shape
    (3, (3, 3))
    """

    parts: Mapping[str, Sequence[Any]]
    positions: tuple[int, ...]
    number: int
    locations: int
    threads: int

    def __len__(self) -> int:
        """Return the number of rows."""
        return sum(count_rows(block) for block in self.parts[DATA])

    def concatenated(self) -> dict[str, Any]:
        """Return the blocks of each name as one. Memory copies, unless there is one block.

        Returns
        -------
        dict of str to block
            Arrays, DataFrames, Series and sparse matrices keep their type.

        Raises
        ------
        InvalidArgumentError
            If blocks of one name are of different kinds.
        """
        return {name: concatenate(blocks) for name, blocks in self.parts.items()}

    def without_empty_blocks(self) -> LocalRows:
        """Return the same rows without blocks of none; one block stays if all are empty.

        Returns
        -------
        LocalRows
        """
        full = [at for at, block in enumerate(self.parts[DATA]) if count_rows(block)] or [0]
        if len(full) == len(self.positions):
            return self
        parts = {name: [blocks[at] for at in full] for name, blocks in self.parts.items()}
        return dataclasses.replace(
            self, parts=parts, positions=tuple(self.positions[at] for at in full)
        )

    def sorted_by_query(self) -> LocalRows:
        """Return the rows with those of a query one after the other, as ranking wants them.

        Returns
        -------
        LocalRows
            Itself if ``qid`` never decreases. Else all blocks as one, in a stable order.

        Raises
        ------
        InvalidArgumentError
            If there is no ``qid``.
        """
        queries = self._queries()
        if np.all(queries[1:] >= queries[:-1]):
            return self
        order = np.argsort(queries, kind="stable")
        whole = self.concatenated()
        parts = {name: [_taken(block, order)] for name, block in whole.items()}
        return dataclasses.replace(self, parts=parts)

    def group_sizes(self) -> npt.NDArray[np.int64]:
        """Return how many rows each query has, in the order in which queries come.

        Returns
        -------
        ndarray of int64, shape (queries,)
            What LightGBM calls ``group``.

        Raises
        ------
        InvalidArgumentError
            If there is no ``qid``, or the rows of a query are not one after the other.
        """
        queries = self._queries()
        starts = np.flatnonzero(np.r_[True, queries[1:] != queries[:-1]])[: len(queries)]
        if len(np.unique(queries)) != len(starts):
            raise InvalidArgumentError(
                "the rows of some query are not one after the other; use sorted_by_query() first"
            )
        sizes: npt.NDArray[np.int64] = np.diff(np.r_[starts, len(queries)]).astype(np.int64)
        return sizes

    def _queries(self) -> npt.NDArray[Any]:
        if QUERY not in self.parts:
            raise InvalidArgumentError(f"there is no {QUERY!r} among {sorted(self.parts)}")
        return np.concatenate([np.asarray(block) for block in self.parts[QUERY]])


def _taken(block: Any, order: npt.NDArray[np.int64]) -> Any:
    return block.iloc[order] if hasattr(block, "iloc") else block[order]


class Colocated:
    """Aligned collections, one partition of all of them at each location.

    Made by :func:`colocate`. A context manager, which lets go of the blocks at its end.

    Parameters
    ----------
    parts : Split
        With one partition per location.
    names : sequence of str
        Of the collections in it.
    asked_for : iterable of str
        Locations that the caller knows.
    """

    def __init__(self, parts: Split, names: Sequence[str], asked_for: Iterable[str]) -> None:
        self._parts = parts
        self._names = tuple(names)
        self._asked_for = tuple(dict.fromkeys(asked_for))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parts; ``"data"`` comes first."""
        return self._names

    @property
    def blocks_at(self) -> Mapping[Location, tuple[int, ...]]:
        """For each location with rows the numbers of its blocks, in order."""
        return {
            partition.location: tuple(index[0] for index in partition.get_indexes())
            for partition in self._parts
        }

    @property
    def empty(self) -> tuple[str, ...]:
        """Those of the locations asked for that have no block."""
        held = set(self._parts.locations)
        return tuple(name for name in self._asked_for if name not in held)

    @property
    def moved(self) -> Movement:
        """What had to be brought to where the data is; see :attr:`spliter.Split.moved`."""
        return self._parts.moved

    def __len__(self) -> int:
        """Return the number of locations that have blocks."""
        return len(self._parts.locations)

    def map(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> list[Any]:
        """Start one task at each location that has blocks, all in one message.

        On Dask each worker starts the tasks of earlier calls first, so that tasks that wait for
        each other, as trainers do, are not held up by those of a later call.

        Parameters
        ----------
        fn : callable
            Gets a :class:`LocalRows` as first argument.
        *args, **kwargs
            Further arguments, the same everywhere.

        Returns
        -------
        list of future
            The engine's own, one per location, in the order of :attr:`blocks_at`.
        """
        return map_rows([self], fn, *args, **kwargs)

    def check_whole_queries(self) -> None:
        """Refuse queries of which rows are at several locations. One task per location.

        Raises
        ------
        AlignmentError
            With some of these queries. A ranking trained on parts of a query compares
            documents only within each part.
        InvalidArgumentError
            If there is no ``qid``.
        """
        at: dict[Any, int] = {}
        torn: list[Any] = []
        for number, queries in enumerate(gather(self.map(_queries_here))):
            torn += [query for query in queries.tolist() if at.setdefault(query, number) != number]
        if torn:
            shown = ", ".join(map(str, sorted(set(torn))[:5]))
            raise AlignmentError(
                f"{len(set(torn))} queries ({shown}{', ...' if len(set(torn)) > 5 else ''}) have "
                "rows at more than one location; sort the data by query and make blocks of whole "
                "queries, with all blocks of a query at one place"
            )

    def close(self) -> None:
        """Release the blocks. Idempotent."""
        self._parts.close()

    def __enter__(self) -> Colocated:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def __repr__(self) -> str:
        """Return names, and numbers of blocks and locations."""
        return (
            f"<Colocated: {', '.join(self._names)}; {self._parts.nblocks} blocks at {len(self)} "
            f"locations, {len(self.empty)} empty>"
        )


def colocate(
    data: Any,
    /,
    *,
    locations: Iterable[str] = (),
    backend: str | None = None,
    **columns: Any,
) -> Colocated:
    """Put together which rows, labels, weights ... are at each location.

    What XGBoost's and LightGBM's modules for Dask do for themselves, as one function, for any
    engine: blocks stay where `data` is, in the order of the collection, and what goes with them
    is brought there if it is elsewhere (:attr:`Colocated.moved` counts it).

    Parameters
    ----------
    data : collection, shape (n, n_features)
        Features, as for :func:`spliter.split`; one block along axis 1.
    locations : iterable of str, optional
        Locations that the program knows (``client.scheduler_info(n_workers=-1)["workers"]`` on
        Dask). Those without a block are reported as :attr:`Colocated.empty`.
    backend : str, optional
        As for :func:`spliter.split`.
    **columns : collection or array-like of length n, or None
        By the names that they are to have: ``label``, ``weight``, ``base_margin``, ``qid``,
        ``init_score``, ... blocked like `data`, or in memory. ``None`` is left out.

    Returns
    -------
    Colocated
        To be used as a context manager, or closed.

    Raises
    ------
    InvalidArgumentError
        If a column is called ``data``, an array in memory has another length than `data`, or
        `data` is cut along axis 1.
    AlignmentError, LazyCollectionError, UnsupportedCollectionError
        As :func:`spliter.split`.

    Examples
    --------
    >>> import numpy as np
    >>> from spliter import gather
    >>> x = [np.ones((2, 3)), np.ones((4, 3))]
    >>> y = [np.zeros(2), np.ones(4)]
    >>> with colocate(x, label=y, weight=None, locations=["local", "elsewhere"]) as rows:
    ...     print(rows.names, dict(rows.blocks_at), rows.empty)
    ...     gather(rows.map(lambda here: float(here.concatenated()["label"].sum())))
    ('data', 'label') {'local': (0, 1)} ('elsewhere',)
    [4.0]
    """
    given = {name: column for name, column in columns.items() if column is not None}
    if DATA in given:
        raise InvalidArgumentError(f"a column cannot be called {DATA!r}: the features are")
    aligned = block_like(data, given, backend=backend).values()
    parts = split(data, *aligned, partitions_per_location=1, backend=backend)
    rows = Colocated(parts, (DATA, *given), locations)
    try:
        check_columns(parts)
    except InvalidArgumentError:
        with rows:
            raise
    return rows


def map_rows(
    several: Sequence[Colocated], fn: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> list[Any]:
    """Start one task at each location that has blocks of any of several, all in one message.

    Parameters
    ----------
    several : sequence of Colocated
        Of one engine; the rows to train on and those to validate with, for instance.
    fn : callable
        Gets for each of `several`, in this order, a :class:`LocalRows`, or ``None`` if it has no
        block at the location.
    *args, **kwargs
        Further arguments, the same everywhere.

    Returns
    -------
    list of future
        The engine's own, one per location: first those of the first of `several`, in the order
        of :attr:`Colocated.blocks_at`, then further ones.

    Examples
    --------
    >>> import numpy as np
    >>> from spliter import gather
    >>> def count(train, valid):
    ...     return len(train), len(valid)
    >>> with colocate([np.ones((4, 1))]) as train, colocate([np.ones((3, 1))]) as valid:
    ...     gather(map_rows([train, valid], count))
    [(4, 3)]
    """
    at: dict[Location, dict[int, Partition]] = {}
    for which, rows in enumerate(several):
        for partition in rows._parts:
            at.setdefault(partition.location, {})[which] = partition
    threads = _threads_at(several[0]._parts[0], list(at))
    names = tuple(rows.names for rows in several)
    futures = []
    for number, (location, present) in enumerate(at.items()):
        place = _Place(names, tuple(present), number, len(at), threads[location])
        first, *others = present.values()
        futures.append(first.submit(_with_rows, place, fn, args, kwargs, *others))
    return futures


@dataclass(frozen=True)
class _Place:
    """Arguments of a training task: its location and its partitions.

    Parameters
    ----------
    names : tuple of tuple of str
        Names of the parts of each :class:`Colocated`.
    present : tuple of int
        Of which of them each partition is.
    number, locations, threads : int
        As of :class:`LocalRows`.
    """

    names: tuple[tuple[str, ...], ...]
    present: tuple[int, ...]
    number: int
    locations: int
    threads: int

    def rows(self, which: int, partition: Partition) -> LocalRows:
        """Return the rows of one partition, where it is."""
        names = self.names[which]
        indexes, blocks = zip(*partition.items(), strict=True)
        columns = zip(*blocks, strict=True) if len(names) > 1 else (blocks,)
        parts = {name: list(column) for name, column in zip(names, columns, strict=True)}
        positions = tuple(index[0] for index in indexes)
        return LocalRows(parts, positions, self.number, self.locations, self.threads)


def _threads_at(partition: Partition, locations: Sequence[Location]) -> Mapping[Location, int]:
    """Return how many tasks each location runs at once."""
    executor = partition.executor
    assert executor is not None, "a Split hands out partitions that can be submitted"
    return executor.capacities(locations)


def _with_rows(
    partition: Partition,
    place: _Place,
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *others: Partition,
) -> Any:
    """Run at a location: call a function with the rows that are there."""
    here: list[LocalRows | None] = [None] * len(place.names)
    for which, each in zip(place.present, (partition, *others), strict=True):
        here[which] = place.rows(which, each)
    return fn(*here, *args, **kwargs)


def _queries_here(rows: LocalRows) -> npt.NDArray[Any]:
    return np.unique(rows._queries())
