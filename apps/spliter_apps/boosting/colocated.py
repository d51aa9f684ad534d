"""Collect the rows of each location with their labels, weights and queries.

There is one partition per location, as distributed boosting runs one trainer per location. A
trainer gets the blocks themselves, in the order of the collection, by name::

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
from spliter.backend import concatenate, count_rows, stays_at_location, take_rows
from spliter_apps._row_values import block_like, check_columns

DATA = "data"
"""Name of the features in :attr:`LocalRows.parts`."""

QUERY = "qid"
"""Name of the column with the query of each row."""


@dataclass(frozen=True)
class LocalRows:
    """The rows of one location.

    Parameters
    ----------
    parts : mapping of str to list of block
        Blocks of the features (``"data"``) and of each column, in the order of the collection.
    positions : tuple of int
        Number of each block in the collection.
    number, locations : int
        Index of this location among those with rows, and their number.
    threads : int
        Tasks that this location runs at once: the cores available to a trainer.

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
        """Return the blocks of each name concatenated; copies unless there is only one.

        Returns
        -------
        dict of str to block
            Arrays, DataFrames, Series and sparse matrices keep their type.

        Raises
        ------
        InvalidArgumentError
            If blocks of one name differ in kind.
        """
        return {name: concatenate(blocks) for name, blocks in self.parts.items()}

    def without_empty_blocks(self) -> LocalRows:
        """Return the same rows without empty blocks; one block stays if all are empty.

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
        """Return the rows sorted by query, as ranking requires.

        Returns
        -------
        LocalRows
            Unchanged if ``qid`` never decreases, else one concatenated block in a stable order.

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
        parts = {name: [take_rows(block, order)] for name, block in whole.items()}
        return dataclasses.replace(self, parts=parts)

    def group_sizes(self) -> npt.NDArray[np.int64]:
        """Return the number of rows of each query, in the order of the rows.

        Returns
        -------
        ndarray of int64, shape (queries,)
            LightGBM's ``group``.

        Raises
        ------
        InvalidArgumentError
            If there is no ``qid``, or the rows of a query are not contiguous.
        """
        queries = self._queries()
        starts = np.flatnonzero(np.r_[True, queries[1:] != queries[:-1]])[: len(queries)]
        if len(np.unique(queries)) != len(starts):
            raise InvalidArgumentError(
                "the rows of a query are not contiguous; call sorted_by_query() first"
            )
        sizes: npt.NDArray[np.int64] = np.diff(np.r_[starts, len(queries)]).astype(np.int64)
        return sizes

    def _queries(self) -> npt.NDArray[Any]:
        if QUERY not in self.parts:
            raise InvalidArgumentError(
                f"{QUERY!r} is missing in {sorted(self.parts)}; pass it to colocate()"
            )
        return np.concatenate([np.asarray(block) for block in self.parts[QUERY]])


class ColocatedCollections:
    """Aligned collections with one partition per location.

    Created by :func:`colocate`. A context manager that releases the blocks on exit.

    Parameters
    ----------
    parts : Split
        With one partition per location.
    names : sequence of str
        Names of the collections in it.
    known_locations : iterable of str
        Locations known to the caller.
    """

    def __init__(self, parts: Split, names: Sequence[str], known_locations: Iterable[str]) -> None:
        self._parts = parts
        self._names = tuple(names)
        self._asked_for = tuple(dict.fromkeys(known_locations))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the collections; ``"data"`` is the first."""
        return self._names

    @property
    def blocks_at(self) -> Mapping[Location, tuple[int, ...]]:
        """Numbers of the blocks at each location with rows, in order."""
        return {
            partition.location: tuple(index[0] for index in partition.get_indexes())
            for partition in self._parts
        }

    @property
    def empty(self) -> tuple[str, ...]:
        """Locations known to the caller that have no block."""
        held = set(self._parts.locations)
        return tuple(name for name in self._asked_for if name not in held)

    @property
    def moved(self) -> Movement:
        """Blocks transferred to the location of their rows; see :attr:`spliter.Split.moved`."""
        return self._parts.moved

    def __len__(self) -> int:
        """Return the number of locations that have blocks."""
        return len(self._parts.locations)

    def map(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> list[Any]:
        """Start one task at each location that has blocks, all in one message.

        The tasks may wait for each other, as trainers do: each runs at its location, also if blocks
        have left it, and on Dask each worker starts the tasks of earlier calls first.

        Parameters
        ----------
        fn : callable
            Gets a :class:`LocalRows` as its first argument.
        *args, **kwargs
            Further arguments, the same for every location.

        Returns
        -------
        list of future
            The engine's own futures, one per location, in the order of :attr:`blocks_at`.
        """
        return map_rows([self], fn, *args, **kwargs)

    def check_whole_queries(self) -> None:
        """Reject queries with rows at several locations. Runs one task per location.

        Raises
        ------
        AlignmentError
            Names some of these queries. A ranking trained on parts of a query compares
            documents only within each part.
        InvalidArgumentError
            If there is no ``qid``.
        """
        at: dict[Any, int] = {}
        torn: list[Any] = []
        for number, queries in enumerate(gather(self.map(_local_queries))):
            torn += [query for query in queries.tolist() if at.setdefault(query, number) != number]
        if torn:
            shown = ", ".join(map(str, sorted(set(torn))[:5]))
            raise AlignmentError(
                f"{len(set(torn))} queries ({shown}{', ...' if len(set(torn)) > 5 else ''}) have "
                "rows at more than one location; sort the data by query, and put all rows of a "
                "query into blocks at one location"
            )

    def close(self) -> None:
        """Release the blocks. Idempotent."""
        self._parts.close()

    def __enter__(self) -> ColocatedCollections:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release the blocks."""
        self.close()

    def __repr__(self) -> str:
        """Return the names, and the numbers of blocks and locations."""
        return (
            f"<ColocatedCollections: {', '.join(self._names)}; {self._parts.nblocks} blocks at "
            f"{len(self)} locations, {len(self.empty)} empty>"
        )


def colocate(
    data: Any,
    /,
    *,
    locations: Iterable[str] = (),
    backend: str | None = None,
    **columns: Any,
) -> ColocatedCollections:
    """Collect the rows of each location with their labels, weights and other columns.

    Blocks of `data` stay in place, in the order of the collection; blocks of columns at other
    locations are transferred to them (:attr:`ColocatedCollections.moved` counts these).

    Parameters
    ----------
    data : collection, shape (n, n_features)
        Features, as for :func:`spliter.split`; one block along axis 1.
    locations : iterable of str, optional
        Locations known to the program (``client.scheduler_info(n_workers=-1)["workers"]`` on
        Dask). Those without a block are reported as :attr:`ColocatedCollections.empty`.
    backend : str, optional
        As for :func:`spliter.split`.
    **columns : collection or array-like of length n, or None
        Columns under their XGBoost or LightGBM names: ``label``, ``weight``, ``base_margin``,
        ``qid``, ``init_score``, ... blocked like `data`, or in memory. ``None`` is skipped.

    Returns
    -------
    ColocatedCollections
        A context manager; else call its :meth:`~ColocatedCollections.close`.

    Raises
    ------
    InvalidArgumentError
        If a column is called ``data``, an array in memory has another length than `data`, or
        `data` has several blocks along axis 1.
    AlignmentError, LazyCollectionError, UnsupportedCollectionError
        As for :func:`spliter.split`.

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
        raise InvalidArgumentError(
            f"{DATA!r} is the name of the features; choose another name for the column"
        )
    aligned = block_like(data, given, backend=backend).values()
    parts = split(data, *aligned, partitions_per_location=1, backend=backend)
    rows = ColocatedCollections(parts, (DATA, *given), locations)
    try:
        check_columns(parts)
    except InvalidArgumentError:
        with rows:
            raise
    return rows


def map_rows(
    several: Sequence[ColocatedCollections], fn: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> list[Any]:
    """Start one task at each location with blocks of several colocated sets, in one message.

    Parameters
    ----------
    several : sequence of ColocatedCollections
        Of one engine; for instance the training and the validation set.
    fn : callable
        Gets a :class:`LocalRows` for each of `several`, in this order, or ``None`` for a set
        without a block at the location.
    *args, **kwargs
        Further arguments, the same for every location.

    Returns
    -------
    list of future
        The engine's own futures, one per location: first those of the first set, in the order
        of :attr:`ColocatedCollections.blocks_at`, then further ones.

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
        place = _TaskArguments(names, tuple(present), number, len(at), threads[location])
        first, *others = present.values()
        futures.append(first.submit(_with_rows, place, fn, args, kwargs, *others))
    return futures


@dataclass(frozen=True)
class _TaskArguments:
    """Arguments of a task: its location and its partitions.

    Parameters
    ----------
    names : tuple of tuple of str
        Names of the collections of each :class:`ColocatedCollections`.
    present : tuple of int
        Index of the :class:`ColocatedCollections` of each partition.
    number, locations, threads : int
        As for :class:`LocalRows`.
    """

    names: tuple[tuple[str, ...], ...]
    present: tuple[int, ...]
    number: int
    locations: int
    threads: int

    def rows(self, which: int, partition: Partition) -> LocalRows:
        """Return the rows of one partition, at its location."""
        names = self.names[which]
        indexes, blocks = zip(*partition.items(), strict=True)
        columns = zip(*blocks, strict=True) if len(names) > 1 else (blocks,)
        parts = {name: list(column) for name, column in zip(names, columns, strict=True)}
        positions = tuple(index[0] for index in indexes)
        return LocalRows(parts, positions, self.number, self.locations, self.threads)


def _threads_at(partition: Partition, locations: Sequence[Location]) -> Mapping[Location, int]:
    """Return how many tasks each location runs at once."""
    executor = partition.executor
    assert executor is not None, "partitions of a Split have an executor"
    return executor.capacities(locations)


@stays_at_location
def _with_rows(
    partition: Partition,
    place: _TaskArguments,
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *others: Partition,
) -> Any:
    """Call a function with the rows at this location; the body of a task."""
    here: list[LocalRows | None] = [None] * len(place.names)
    for which, each in zip(place.present, (partition, *others), strict=True):
        here[which] = place.rows(which, each)
    return fn(*here, *args, **kwargs)


def _local_queries(rows: LocalRows) -> npt.NDArray[Any]:
    return np.unique(rows._queries())
