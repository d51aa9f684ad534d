"""``Split``: the partitions of a collection, as a sequence with methods that run on all of them.

``spliter.split``, which makes one, is in ``_open.py``. A Split holds a :class:`spliter._plan.Plan`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Self, overload

import numpy.typing as npt

from spliter._format import plural
from spliter._hints import COLUMNS, FN, missing_attribute
from spliter._partition import Partition
from spliter._plan import Plan
from spliter._planning.grid import BlockGrid
from spliter._planning.planner import Location
from spliter._planning.reuse import Materialization
from spliter._running.per_block import RowCounts, assemble, map_blocks
from spliter._running.results import check_may_wait
from spliter._running.take import take
from spliter._running.team import Queues, map_reduce
from spliter.backend.blocks import Movement
from spliter.html import split_html, text_html
from spliter.metrics import Metrics, report


class Split(Sequence[Partition]):
    """The partitions of a collection: a reusable sequence that keeps the blocks alive.

    A Split is a snapshot of where the blocks were. Results stay correct if the engine moves
    blocks, spills them or recomputes them after a worker was lost: tasks check at the
    location, run where the blocks are now or fetch missing ones (counted in :attr:`moved`),
    and the next iteration over the Split plans again. Indexing does not plan again, so
    ``split[i]`` is stable between two iterations.

    Use it as a context manager, or call :meth:`close`, to release the blocks early.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def __len__(self) -> int:
        """Return the number of partitions."""
        return len(self._plan.partitions)

    @overload
    def __getitem__(self, index: int) -> Partition: ...
    @overload
    def __getitem__(self, index: slice) -> list[Partition]: ...
    def __getitem__(self, index: int | slice) -> Partition | list[Partition]:
        """Return one partition, or a list of them for a slice."""
        self._plan.check_open()
        if not isinstance(index, slice) and not hasattr(index, "__index__"):
            raise TypeError(
                f"indices of a Split are ints or slices, not {type(index).__name__}; {COLUMNS}"
            )
        return self._plan.partitions[index]

    def __iter__(self) -> Iterator[Partition]:
        """Iterate over the partitions; plans again if a task found blocks moved.

        With schedule AUTO also if measured seconds promise a shorter pass.
        """
        return iter(self._plan.begin_pass())

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
            The engine's own futures, in the order of the partitions. Combine only those of one
            call: the next call has other partitions if blocks have moved.
        """
        return [partition.submit(fn, *args, **kwargs) for partition in self]

    def map_reduce(
        self,
        fn: Callable[..., Any],
        combine: Callable[[Any, Any], Any],
        /,
        *args: Any,
        threads: int | None = None,
        queues: Queues = "central",
    ) -> Any:
        """Call ``fn(partition, *args)`` for every partition, and combine the results.

        For short passes over many partitions: starts one task per location, in which a team of
        threads takes the partitions one after the other.

        Parameters
        ----------
        fn : callable
            Gets a partition, iterable where it runs, as its first argument. It may run in several
            threads of a process at once.
        combine : callable
            Combines two results; must be associative and commutative. Called in the order of the
            partitions' first blocks at each location, then in that of the locations: the result
            does not depend on which thread ran what.
        *args
            Further arguments of `fn`, the same for every partition.
        threads : int, optional
            Threads at each location, at most its cores; by default as many as it has. On Dask
            fewer run while the worker has other tasks.
        queues : {"central", "core", "group"}
            Where the threads take partitions from: one queue, one for each thread, or as many as
            the machine has NUMA nodes. A thread with an empty queue takes from the tail of others,
            of its own group first.

        Returns
        -------
        future
            The engine's own future of the combined result.

        Raises
        ------
        InvalidArgumentError
            If `fn` or `combine` is not callable, `threads` is not between 1 and the cores of each
            location, or `queues` is none of its values.

        Notes
        -----
        If `fn` raises, no other partition of its location begins, and the error of the first
        partition there in the order of the collection is raised; if several locations fail, that
        of any of them. If a location is lost, the engine runs its task again from the start.

        Examples
        --------
        >>> import operator
        >>> import numpy as np
        >>> from spliter import split
        >>> parts = split([np.ones(3), np.ones(2)], schedule="FAC2")
        >>> float(parts.map_reduce(lambda part: sum(map(np.sum, part)), operator.add).result())
        5.0
        """
        return map_reduce(self._plan, fn, combine, args, threads, queues)

    def take(self, indices: Any, columns: Sequence[Hashable] | None = None) -> Any:
        """Return rows of the collection by their global index.

        Runs one task for each partition that has any of the rows. Each returns its distinct rows
        as one block; nothing else moves.

        Parameters
        ----------
        indices : array_like of int, shape (n,)
            Row numbers in the whole collection, in any order and repeated; negative ones count
            from the end.
        columns : sequence, optional
            Columns to return, as for :meth:`Partition.materialize`.

        Returns
        -------
        block, or tuple of block
            `n` rows, of the type of the blocks; a tuple if collections are aligned. The fields of
            a structured array are packed.

        Raises
        ------
        ItemIndexError
            If an index is out of range; an ``IndexError``.
        InvalidArgumentError
            If the indices are not whole numbers (for a mask, pass ``numpy.flatnonzero(mask)``), a
            column is unknown or repeated, the blocks form several columns, or this is the engine's
            event loop, which must not wait.

        Notes
        -----
        If the sizes of blocks are unknown, the first call counts the rows, with one more task for
        each partition. Where the dtypes of blocks differ, the result has the common dtype of the
        rows that were requested.

        Examples
        --------
        >>> import numpy as np
        >>> from spliter import split
        >>> split([np.arange(3), np.arange(10, 15)]).take([7, 0, -1])
        array([14,  0, 14])
        """
        return take(self._plan, indices, columns)

    def map_blocks(
        self,
        fn: Callable[..., Any],
        /,
        *args: Any,
        dtype: npt.DTypeLike | None = None,
        trailing_shape: Sequence[int] = (),
        meta: Any = None,
        rows: RowCounts = "same",
        **kwargs: Any,
    ) -> Any:
        """Apply a function to every block, with one task per partition.

        Parameters
        ----------
        fn : callable
            Gets a block (a tuple, if collections are aligned) as its first argument and
            returns an array, DataFrame, Series or Index with the same number of rows. If the
            collection has several blocks along further axes, an array with the sizes of the block
            along these too.
        *args, **kwargs
            Further arguments, the same for every block; futures arrive as their results.
        dtype : dtype, optional
            Dtype of the arrays that `fn` returns. Without `dtype` and `meta`, `fn` is called in
            this process on an example block: made from the metadata of a Dask array or
            DataFrame, or one row of the first block of a collection in this process.
        trailing_shape : sequence of int
            With `dtype`: shape of the result for one row (one item, if the collection has blocks
            along further axes); a single number by default.
        meta : DataFrame, Series, Index, ndarray, sparse matrix, tuple or dict, optional
            Instead of `dtype`: an example of a result of `fn`, whose rows are ignored; or
            ``(name, dtype)`` of a Series, ``{name: dtype}`` of a DataFrame, with the index of
            the blocks.
        rows : {"same", "unknown"}
            Whether `fn` returns as many rows as the block has. "unknown" is for functions that
            select rows: the new collection has blocks of unknown sizes.

        Returns
        -------
        collection
            Blocked like this one: a Dask array, or a Dask DataFrame, Series or Index if `fn`
            returns those; a list of results for collections in this process (which waits for
            them), nested if there are blocks along several axes. Dask DataFrames and Series keep
            known divisions, unless `fn` is seen to change the index.

        Raises
        ------
        InvalidArgumentError
            If the type of the results is neither given nor can be inferred, `rows` is none of its
            values, or `fn` has a parameter ``block_info``, ``block_id`` or ``partition_info``,
            which Dask would fill in, that is not given by keyword. In the task, if blocks differ
            in the names or the order of columns, or `fn` returns a different number of rows, a
            value of another type, or an index outside of the divisions.

        Notes
        -----
        Columns of results are matched by name, and results are converted to the dtype of all, if
        that loses nothing.

        Examples
        --------
        >>> import numpy as np
        >>> from spliter import split
        >>> split([np.arange(2), np.arange(3)]).map_blocks(np.square)
        [array([0, 1]), array([0, 1, 4])]
        """
        self._plan.check_open()
        result = dtype, trailing_shape, meta
        return map_blocks(self._plan, fn, args, kwargs, result, rows)

    def assemble(
        self,
        results: Iterable[tuple[Partition, Any]],
        *,
        dtype: npt.DTypeLike | None = None,
        trailing_shape: Sequence[int] = (),
        meta: Any = None,
        output: int | None = None,
        rows: RowCounts = "same",
    ) -> Any:
        """Make a collection from the results of one task per partition.

        Parameters
        ----------
        results : iterable of (Partition, future)
            All partitions of one iteration, each with the future of a list of arrays or frames,
            one per block (see :meth:`Partition.cut`).
        dtype, trailing_shape, meta, rows
            Of these arrays or frames, as for :meth:`map_blocks`.
        output : int, optional
            Which element of each result to use, if the tasks return tuples of such lists.

        Returns
        -------
        collection
            As for :meth:`map_blocks`.

        Raises
        ------
        InvalidArgumentError
            If the partitions are not those of one iteration, `rows` is none of its values, or
            neither `dtype` nor `meta` is given.
        """
        return assemble(self._plan, results, (dtype, trailing_shape, meta), output, rows)

    def metrics(self) -> Metrics:
        """Return what the last pass took: seconds, CPU seconds and waiting of each partition.

        Measured where the partitions are iterated over, from the request of the first block to the
        end of the loop; collected with one small task per location. Wait for the tasks of the pass
        first. A task that calls :meth:`Partition.materialize` in place of a loop is not measured.

        Returns
        -------
        Metrics
            Table with a row for each location, and a hint if threads wait for the interpreter lock;
            a sequence of :class:`PartitionMetrics`.

        Raises
        ------
        InvalidArgumentError
            If called on the engine's event loop, which must not wait.

        Examples
        --------
        >>> import numpy as np
        >>> from spliter import gather, split
        >>> parts = split([np.ones(3), np.ones(2)], partitions_per_location=2)
        >>> gather(parts.map(lambda part: sum(len(block) for block in part)))
        [3, 2]
        >>> [one.blocks for one in parts.metrics()]
        [1, 1]
        """
        self._plan.check_open()
        check_may_wait(self._plan.executor)
        return report(self._plan.partitions, self._plan.passes(), self._plan.capacities)

    @property
    def materialization(self) -> Materialization:
        """Whether partitions are materialized, from which pass on, and why."""
        return self._plan.materialization

    @property
    def ncollections(self) -> int:
        """Number of collections split together."""
        return len(self._plan.blocks.grids)

    @property
    def locations(self) -> tuple[Location, ...]:
        """The locations that have partitions, sorted."""
        return self._plan.locations

    @property
    def nblocks(self) -> int:
        """Number of blocks of the collection."""
        return self._plan.grid.nblocks

    @property
    def nbytes(self) -> int:
        """Total bytes of the blocks of the (first) collection, as far as known."""
        return self._plan.nbytes

    @property
    def grid(self) -> BlockGrid:
        """The block grid of the (first) collection."""
        return self._plan.grid

    @property
    def moved(self) -> Movement:
        """Blocks transferred over the network for this Split."""
        return self._plan.blocks.moved()

    def refresh(self) -> None:
        """Locate the blocks again and plan anew if they have moved.

        Happens automatically at the start of an iteration after a task found blocks moved.

        Raises
        ------
        BlockLostError
            If blocks are lost.
        """
        self._plan.check_open()
        self._plan.renew("refresh")

    def resolve_item_indexes(self) -> None:
        """Count the rows of blocks of unknown size, so that all partitions know item indexes.

        Costs one task per partition the first time, nothing if sizes are known.

        Raises
        ------
        UnknownItemIndexError
            If called on the engine's event loop, which must not wait.
        """
        self._plan.number_items()

    def close(self) -> None:
        """Release the blocks; further use of the partitions is an error. Idempotent."""
        self._plan.close()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the Split."""
        self.close()

    def __reduce__(self) -> NoReturn:
        """Reject pickling: only partitions are sent to tasks.

        Engines turn the error into a ``TaskNotSerializableError`` that names the variable.
        """
        raise TypeError("a Split cannot be pickled; pass its partitions to tasks instead")

    def __dask_tokenize__(self) -> NoReturn:
        """Reject Dask's own functions, such as ``client.map(fn, parts)``, which would pickle it."""
        raise TypeError(
            f"Dask's own functions take no Split, as they start tasks at any worker; start {FN}"
        )

    if not TYPE_CHECKING:  # so that type checkers reject unknown attributes

        def __getattr__(self, name: str) -> Any:
            """Raise `AttributeError`, with a hint for names of Dask."""
            raise missing_attribute(self, name)

    def __repr__(self) -> str:
        """Return the numbers of partitions, locations and blocks, and the size."""
        if self._plan.is_closed:
            return "<Split: closed>"
        if self._plan.executor.is_closed:
            return f"<Split: {self.nblocks} blocks, not usable: the client was closed>"
        return (
            f"<Split: {plural(len(self), 'partition')} at "
            f"{plural(len(self.locations), 'location')}, {plural(self.nblocks, 'block')}, "
            f"{self.nbytes} bytes{self._plan}>"
        )

    def _repr_html_(self) -> str:
        plan, text = self._plan, repr(self)
        if not len(self) or text.endswith("closed>"):
            return text_html(text)
        blocks = [partition._blocks for partition in plan.partitions]
        advice = plan.blocks.spread_advice
        return split_html(blocks, self.grid.shape, self.moved, str(plan), advice)
