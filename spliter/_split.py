"""``Split``: plan partitions, submit tasks on them, and assemble their results."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, overload

import numpy as np
import numpy.typing as npt

from spliter._alignment import check_aligned
from spliter._errors import InvalidArgumentError, SplitClosedError, UnknownItemIndexError
from spliter._events import LOGGER, log_event
from spliter._format import plural
from spliter._grid import UNKNOWN, BlockGrid
from spliter._materialize import Materialization, Materialize, decide
from spliter._partition import NOT_MATERIALIZED, Partition
from spliter._per_block import HINT, Template, count_items, map_over, place_results
from spliter._planner import Location, plan
from spliter._schedule import Order, Schedule
from spliter.backend.protocols import (
    Blocks,
    Executor,
    Movement,
    ResultBlocks,
    SupportsClose,
    SupportsExample,
)
from spliter.html import split_html


class Split(Sequence[Partition]):
    """The partitions of a collection: a reusable sequence that keeps the blocks alive.

    A Split is a snapshot of where the blocks were. Results stay correct if the engine moves
    blocks, spills them or recomputes them after a worker was lost: tasks check at the
    location, run where the blocks are now or fetch missing ones (counted in :attr:`moved`),
    and the next iteration over the Split plans again. Indexing does not plan again, so
    ``split[i]`` is stable between two iterations.

    Use it as a context manager, or call :meth:`close`, to release the blocks early.
    """

    def __init__(
        self,
        blocks: Blocks,
        executor: Executor,
        partitions_per_location: int | None,
        materialize: Materialize = False,
        schedule: Schedule | None = None,
    ) -> None:
        check_aligned(blocks.grids)
        self._blocks = blocks
        self._executor = executor
        self._partitions_per_location = partitions_per_location
        order: Order = "contiguous" if blocks.stored else "strided"
        self._schedule = schedule and schedule.with_order(order)
        self._grid = blocks.grids[0]
        self._partitions: list[Partition] = []
        self._made: weakref.WeakSet[Partition] = weakref.WeakSet()
        self._closed = False
        self._materialize = materialize
        self._materialization = NOT_MATERIALIZED
        self._plan()
        self._log("split", "split %(blocks)d blocks into %(partitions)d partitions")
        self._decide()

    def _plan(self) -> None:
        """Locate the blocks and group them; unchanged partitions keep their identity."""
        placement = self._blocks.locate()
        capacities = self._executor.capacities(placement.locations)
        planned = plan(placement, capacities, self._partitions_per_location, self._schedule)
        present = {
            (part.location, part.indexes.positions.tobytes()): part for part in self._partitions
        }
        keys = [(part.location, part.positions.tobytes()) for part in planned]
        new = [part for part, key in zip(planned, keys, strict=True) if key not in present]
        resolve = weakref.WeakMethod(self._resolve_grid)
        for part, source in zip(new, self._blocks.sources(new), strict=True):
            partition = Partition.from_plan(part, self._grid, source, self._executor, resolve)
            partition.materialization = self._materialization
            present[part.location, part.positions.tobytes()] = partition
            self._made.add(partition)
        self._partitions = [present[key] for key in keys]
        numbers = {location: number for number, location in enumerate(self.locations)}
        for partition in self._partitions:
            partition.location_number = numbers[partition.location]

    def _decide(self) -> None:
        """Decide once whether to materialize: later, copies themselves take up free memory.

        Counts rows, with one small task per partition, if they are unknown.
        """
        askable = self._materialize == "auto" and self._executor.blocking_call_allowed()
        if askable and not self._grid.has_known_items and len(self) < self.nblocks:
            self.resolve_item_indexes()  # calls this method again, with known sizes
            return
        nbytes: dict[Location, int] = {}
        for partition in self._partitions:
            nbytes[partition.location] = nbytes.get(partition.location, 0) + partition.nbytes
        self._materialization = decide(
            self._materialize,
            self._grid,
            nbytes,
            max(map(len, self._partitions), default=0),
            lambda: self._executor.free_memory(self.locations),
        )
        for partition in self._partitions:
            partition.materialization = self._materialization
        if self._materialize is not False:
            log_event(
                "materialization",
                "partitions are %(decision)s",
                decision=str(self._materialization),
                from_pass=self._materialization.from_pass,
                reason=self._materialization.reason,
            )

    def refresh(self) -> None:
        """Locate the blocks again and plan anew if they have moved.

        Happens automatically at the start of an iteration after a task found blocks moved.

        Raises
        ------
        BlockLostError
            If blocks are lost.
        """
        self._check_open()
        self._plan_again("refresh")

    def _plan_again(self, cause: str) -> None:
        before = self._partitions
        self._plan()
        kept = len(set(map(id, before)) & set(map(id, self._partitions)))
        self._log(
            "replan",
            "replanned (%(cause)s): %(changed)d of %(partitions)d partitions are new",
            cause=cause,
            changed=len(self._partitions) - kept,
        )

    def _log(self, event: str, message: str, **fields: Any) -> None:
        """Log the plan and what was transferred for it so far."""
        if not LOGGER.isEnabledFor(logging.INFO):  # counting costs time
            return
        moved = self.moved
        log_event(
            event,
            message + " (locations: %(locations)d, %(executor)s)",
            executor=type(self._executor).__name__,
            blocks=self.nblocks,
            partitions=len(self),
            locations=len(self.locations),
            nbytes=self.nbytes,
            aligned_blocks=moved.aligned_blocks,
            aligned_nbytes=moved.aligned_nbytes,
            fetched_blocks=moved.fetched_blocks,
            fetched_nbytes=moved.fetched_nbytes,
            **fields,
        )

    def _check_open(self) -> None:
        if self._closed:
            raise SplitClosedError("this Split was closed; split the collection again")

    def __len__(self) -> int:
        """Return the number of partitions."""
        return len(self._partitions)

    @overload
    def __getitem__(self, index: int) -> Partition: ...
    @overload
    def __getitem__(self, index: slice) -> list[Partition]: ...
    def __getitem__(self, index: int | slice) -> Partition | list[Partition]:
        """Return one partition, or a list of them for a slice."""
        self._check_open()
        return self._partitions[index]

    def __iter__(self) -> Iterator[Partition]:
        """Iterate over the partitions; plans again if a task found blocks moved."""
        self._check_open()
        if self._blocks.has_drifted() and self._executor.blocking_call_allowed():
            self._plan_again("drift")
        return iter(list(self._partitions))

    def map(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> list[Any]:
        """Submit ``fn(partition, *args, **kwargs)`` for every partition.

        Parameters
        ----------
        fn : callable
            Gets a partition, iterable where it runs, as its first argument.
        *args, **kwargs
            Further arguments, the same for every partition.

        Returns
        -------
        list of future
            The engine's own futures, in the order of the partitions.
        """
        return [partition.submit(fn, *args, **kwargs) for partition in self]

    def map_blocks(
        self,
        fn: Callable[..., Any],
        /,
        *args: Any,
        dtype: npt.DTypeLike | None = None,
        trailing_shape: Sequence[int] = (),
        meta: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Apply a function to every block, with one task per partition.

        Parameters
        ----------
        fn : callable
            Gets a block (a tuple, if collections are aligned) as its first argument and
            returns an array, DataFrame, Series or Index with the same number of rows.
        *args, **kwargs
            Further arguments, the same for every block; futures arrive as their results.
        dtype : dtype, optional
            Dtype of the arrays that `fn` returns. Without `dtype` and `meta`, `fn` is called in
            this process on an example block: made from the metadata of a Dask array or
            DataFrame, or one row of the first block of a collection in this process.
        trailing_shape : sequence of int
            With `dtype`: shape of the result for one row; a single number by default.
        meta : DataFrame, Series, Index or ndarray, optional
            Instead of `dtype`: an example of a result of `fn`. Its rows are ignored.

        Returns
        -------
        collection
            Blocked like this one: a Dask array, or a Dask DataFrame, Series or Index if `fn`
            returns those; a list of results for collections in this process (which waits for
            them).

        Raises
        ------
        InvalidArgumentError
            If the type of the results is neither given nor can be inferred. In the task, if
            `fn` returns a different number of rows, or a value of another type.

        Examples
        --------
        >>> import numpy as np
        >>> from spliter import split
        >>> split([np.arange(2), np.arange(3)]).map_blocks(np.square)
        [array([0, 1]), array([0, 1, 4])]
        """
        template = Template.given(dtype, trailing_shape, meta) or self._infer(fn, args, kwargs)
        partitions = list(self)
        results = [
            (partition, partition.submit(map_over, template, fn, *args, **kwargs))
            for partition in partitions
        ]
        return self._assemble(results, template, None)

    def _infer(
        self, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Template:
        self._check_open()
        example = self._blocks.example() if isinstance(self._blocks, SupportsExample) else None
        if example is None:
            raise InvalidArgumentError(
                f"map_blocks cannot infer what the function returns for this collection; {HINT}"
            )
        return Template.infer(fn, example, args, kwargs)

    def assemble(
        self,
        results: Iterable[tuple[Partition, Any]],
        *,
        dtype: npt.DTypeLike | None = None,
        trailing_shape: Sequence[int] = (),
        meta: Any = None,
        output: int | None = None,
    ) -> Any:
        """Make a collection from the results of one task per partition.

        Parameters
        ----------
        results : iterable of (Partition, future)
            All partitions of one iteration, each with the future of a list of arrays or frames,
            one per block (see :meth:`Partition.cut`).
        dtype : dtype, optional
            Dtype of these arrays.
        trailing_shape : sequence of int
            Their shape without axis 0.
        meta : DataFrame, Series, Index or ndarray, optional
            Instead of `dtype`: an example of a frame.
        output : int, optional
            Which element of each result to use, if the tasks return tuples of such lists.

        Returns
        -------
        collection
            As for :meth:`map_blocks`.

        Raises
        ------
        InvalidArgumentError
            If the partitions are not those of one iteration, the blocks form columns, or
            neither `dtype` nor `meta` is given.
        """
        template = Template.given(dtype, trailing_shape, meta)
        if template is None:
            raise InvalidArgumentError(f"assemble() needs the type of the blocks; {HINT}")
        return self._assemble(results, template, output)

    def _assemble(
        self, results: Iterable[tuple[Partition, Any]], template: Template, output: int | None
    ) -> Any:
        self._check_open()
        placed = place_results(self._grid, results)
        rows = tuple(self._grid.row_counts.tolist())
        made = ResultBlocks(rows, template.trailing_shape, template.dtype, output, template.meta)
        return self._executor.assemble(placed, made)

    @property
    def materialization(self) -> Materialization:
        """Whether partitions are materialized, from which pass on, and why."""
        return self._materialization

    @property
    def ncollections(self) -> int:
        """Number of collections split together."""
        return len(self._blocks.grids)

    @property
    def locations(self) -> tuple[Location, ...]:
        """The locations that have partitions, sorted."""
        return tuple(sorted({partition.location for partition in self._partitions}))

    @property
    def nblocks(self) -> int:
        """Number of blocks of the collection."""
        return self._grid.nblocks

    @property
    def nbytes(self) -> int:
        """Total bytes of the blocks of the (first) collection, as far as known."""
        return sum(partition.nbytes for partition in self._partitions)

    @property
    def grid(self) -> BlockGrid:
        """The block grid of the (first) collection."""
        return self._grid

    @property
    def moved(self) -> Movement:
        """Blocks transferred over the network for this Split."""
        return self._blocks.moved()

    def resolve_item_indexes(self) -> None:
        """Count the rows of blocks of unknown size, so that all partitions know item indexes.

        Costs one task per partition the first time, nothing if sizes are known.

        Raises
        ------
        UnknownItemIndexError
            If called on the engine's event loop, which must not wait.
        """
        self._check_open()
        self._resolve_grid()
        for partition in self._made:
            if not partition.has_known_items:
                partition.number_items(self._grid)

    def _resolve_grid(self) -> BlockGrid:
        if not self._grid.has_known_items:
            if not self._executor.blocking_call_allowed():
                raise UnknownItemIndexError(
                    "item indexes need the sizes of the blocks, and querying them would block the "
                    "event loop; use await asyncio.to_thread(split.resolve_item_indexes)"
                )
            counts = np.full(self._grid.shape[0], UNKNOWN, dtype=np.int64)
            # One list for both loops: each iteration over the Split may plan again.
            partitions = list(self)
            futures = [partition.submit(count_items) for partition in partitions]
            for partition, future in zip(partitions, futures, strict=True):
                rows = [index[0] for index in partition.get_indexes()]
                counts[rows] = future.result()
            self._grid = self._grid.with_row_counts(counts)
            self._decide()
        return self._grid

    def close(self) -> None:
        """Release the blocks; further use of the partitions is an error. Idempotent."""
        self._closed = True
        for partition in self._made:
            partition.close()
        self._blocks.close()

    def __reduce__(self) -> NoReturn:
        """Reject pickling: only partitions are sent to tasks.

        Raises
        ------
        TypeError
            Always. Engines turn it into a ``TaskNotSerializableError`` that names the variable.
        """
        raise TypeError("a Split cannot be pickled; pass its partitions to tasks instead")

    def __enter__(self) -> Split:
        """Return itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the Split."""
        self.close()

    def __repr__(self) -> str:
        """Return the numbers of partitions, locations and blocks, and the size."""
        if self._closed:
            return "<Split: closed>"
        if self._client_is_closed():
            return f"<Split: {self.nblocks} blocks, not usable: the client was closed>"
        return (
            f"<Split: {plural(len(self), 'partition')} at "
            f"{plural(len(self.locations), 'location')}, {plural(self.nblocks, 'block')}, "
            f"{self.nbytes} bytes{self._materialization_text()}>"
        )

    def _client_is_closed(self) -> bool:
        return isinstance(self._executor, SupportsClose) and self._executor.is_closed

    def _spread_advice(self) -> str:
        """Return the engine's own way to spread blocks evenly, if it has one."""
        return str(getattr(self._blocks, "spread_advice", ""))

    def _materialization_text(self) -> str:
        return "" if self._materialize is False else f", {self._materialization}"

    def _repr_html_(self) -> str:
        return split_html(self)
