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
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from spliter import (
    AlignmentError,
    InvalidArgumentError,
    Location,
    Movement,
    Partition,
    Split,
    as_completed,
    gather,
    split,
)
from spliter.backend import stays_at_location
from spliter_apps._row_values import block_like, check_columns
from spliter_apps.boosting.local_rows import (
    DATA,
    Columns,
    LocalRows,
    columns_of,
    merge_columns,
    queries_of,
)


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
        self._columns = dict.fromkeys(names, Columns())
        self._known = tuple(dict.fromkeys(known_locations))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the collections; ``"data"`` is the first."""
        return tuple(self._columns)

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
        return tuple(name for name in self._known if name not in held)

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
        for number, queries in enumerate(gather(self.map(queries_of))):
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

    def __exit__(self, *_: object) -> None:
        """Release the blocks."""
        self.close()

    def __repr__(self) -> str:
        """Return the names, and the numbers of blocks and locations."""
        return (
            f"<ColocatedCollections: {', '.join(self.names)}; {self._parts.nblocks} blocks at "
            f"{len(self)} locations, {len(self.empty)} empty>"
        )


def colocate(
    data: Any, /, *, locations: Iterable[str] = (), backend: str | None = None, **columns: Any
) -> ColocatedCollections:
    """Collect the rows of each location with their labels, weights and other columns.

    Blocks of `data` stay in place, in the order of the collection; blocks of columns at other
    locations are transferred to them (:attr:`ColocatedCollections.moved` counts these). One task
    per location checks that blocks have the same columns, and collects the categories of all.

    Parameters
    ----------
    data : collection, shape (n, n_features)
        Features, as for :func:`spliter.split`; one block along axis 1.
    locations : iterable of str, optional
        Locations known to the program (``client.nthreads()`` on Dask). Those without a block are
        reported as :attr:`ColocatedCollections.empty`.
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
        If a column is called ``data``, an array in memory has another length than `data`,
        `data` has several blocks along axis 1, or blocks of one collection differ in their
        columns (names, order or number), in whether they are sparse, or in the kind of their
        categories; or if an element is masked.
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
    rows = open_rows(data, columns, locations=locations, backend=backend)
    with ExitStack() as stack:
        stack.enter_context(rows)
        share_columns([rows])
        stack.pop_all()
    return rows


def open_rows(
    data: Any, columns: Mapping[str, Any], *, locations: Iterable[str], backend: str | None = None
) -> ColocatedCollections:
    """Colocate collections whose blocks :func:`share_columns` still has to check."""
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


def share_columns(
    several: Sequence[ColocatedCollections],
    check: Callable[[LocalRows], None] | None = None,
    timeout: float | None = None,
) -> Columns:
    """Check the blocks of several sets, and give all of them the same categories.

    `check` is called at each location with the rows of each set. Returns the columns of the
    features of all sets. Raises `TaskTimeoutError` if the locations do not all answer within
    `timeout` seconds.
    """
    futures = map_rows(several, _inspect_rows, check=check)
    try:
        for _ in as_completed(futures, timeout):
            pass
        results = gather(futures)
    except BaseException:
        for future in futures:
            future.cancel()
        raise
    for rows, found in zip(several, zip(*results, strict=True), strict=True):
        rows._columns = merge_columns(columns for columns in found if columns)
    shared = merge_columns({DATA: rows._columns[DATA]} for rows in several)[DATA]
    for rows in several:
        mine = rows._columns[DATA]
        rows._columns[DATA] = dataclasses.replace(mine, categories=shared.categories)
    return shared


def refuse_no_rows(several: Sequence[ColocatedCollections]) -> None:
    """Refuse sets without any row, whose blocks :func:`share_columns` has checked."""
    for number, rows in enumerate(several):
        if not rows._columns[DATA].rows:
            which = f"set {number} of evals" if number else "data"
            raise InvalidArgumentError(
                f"there are no rows in {which}: all {rows._parts.nblocks} blocks are empty; check "
                "the filter that made them"
            )


def _inspect_rows(
    *several: LocalRows | None, check: Callable[[LocalRows], None] | None
) -> list[dict[str, Columns]]:
    """Check the rows of each set at this location; the body of a task."""
    if check is not None:
        for rows in filter(None, several):
            check(rows)
    return [{} if rows is None else columns_of(rows) for rows in several]


def map_rows(
    several: Sequence[ColocatedCollections], fn: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> list[Any]:
    """Start one task at each location with blocks of several colocated sets, in one message.

    `fn` gets a :class:`LocalRows` for each set, ``None`` for one without a block at the location.
    Futures are in the order of the locations of the first set, then of further ones.

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
    columns = tuple(dict(rows._columns) for rows in several)
    futures = []
    for number, (location, present) in enumerate(at.items()):
        place = _TaskArguments(columns, tuple(present), number, len(at), threads[location])
        first, *others = present.values()
        futures.append(first.submit(_with_rows, place, fn, args, kwargs, *others))
    return futures


@dataclass(frozen=True)
class _TaskArguments:
    """Arguments of a task: its location and its partitions.

    columns: Of the collections of each :class:`ColocatedCollections`.
    present: Index of the :class:`ColocatedCollections` of each partition.
    number, locations, threads: As for :class:`LocalRows`.
    """

    columns: tuple[Mapping[str, Columns], ...]
    present: tuple[int, ...]
    number: int
    locations: int
    threads: int

    def rows(self, which: int, partition: Partition) -> LocalRows:
        """Return the rows of one partition, at its location."""
        known = self.columns[which]
        indexes, blocks = zip(*partition.items(), strict=True)
        members = zip(*blocks, strict=True) if len(known) > 1 else (blocks,)
        parts = {
            name: [columns.apply(block) for block in member]
            for (name, columns), member in zip(known.items(), members, strict=True)
        }
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
    here: list[LocalRows | None] = [None] * len(place.columns)
    for which, each in zip(place.present, (partition, *others), strict=True):
        here[which] = place.rows(which, each)
    return fn(*here, *args, **kwargs)
