"""``Split``: run functions on all partitions of a collection, and combine what they return."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import numpy.typing as npt

from spliter._checks import check_block_function, check_task_function
from spliter._errors import InvalidArgumentError
from spliter._partition import Partition
from spliter._planning.grid import BlockGrid
from spliter._planning.planner import Location
from spliter._planning.take import Rows, check_items, plan_rows
from spliter._reading.columns import check_columns
from spliter._reading.concatenate import concatenate
from spliter._reading.kinds import unwrap_dataset, wrap_datasets
from spliter._reading.rows import take_rows
from spliter._running.per_block import (
    RowCounts,
    check_rows_option,
    map_over,
    names_of_block,
    names_of_first,
    pick,
    place_results,
    result_chunks,
)
from spliter._running.results import check_may_wait, reduce
from spliter._running.team import Queues, Team, check_queues, team_size
from spliter._running.template import HINT, Template
from spliter._snapshot import Snapshot
from spliter.backend.executor import ResultBlocks
from spliter.backend.registry import options_of_blocks
from spliter.metrics import Metrics, report


def _first_block(partitions: Iterable[Partition]) -> int:
    """Return the position of the first block of some partitions in their collection."""
    return min(int(partition.indexes.positions[0]) for partition in partitions)


class Split(Snapshot):
    """The partitions of a collection: a reusable sequence that keeps the blocks alive.

    A Split is a snapshot of where the blocks were. Results stay correct if the engine moves
    blocks, spills them or recomputes them after a worker was lost: tasks check at the
    location, run where the blocks are now or fetch missing ones (counted in :attr:`moved`),
    and the next iteration over the Split plans again. Indexing does not plan again, so
    ``split[i]`` is stable between two iterations.

    Use it as a context manager, or call :meth:`close`, to release the blocks early.
    """

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
        check_task_function(fn)
        check_task_function(combine, "combine, the second argument of map_reduce,")
        check_queues(queues)
        here: dict[Location, list[Partition]] = {}
        for partition in self:
            here.setdefault(partition.location, []).append(partition)
        sizes = {
            location: team_size(threads, location, self._capacities[location])
            for location in sorted(here, key=lambda location: _first_block(here[location]))
        }
        futures = [
            self._executor.submit_team(
                Team(fn, combine, size, queues, len(here[location])),
                (*here[location], *args),
                location,
                size,
            )
            for location, size in sizes.items()
        ]
        return reduce(combine, futures)

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
            Columns to return, in this order: numbers for arrays and sparse matrices, names of
            fields for structured arrays, labels for DataFrames and tables. All columns by default.
            Aligned collections, after the first one, keep all theirs.

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
        selected = check_columns(columns)
        check_may_wait(self._executor)
        self.resolve_item_indexes()
        items = check_items(indices, int(self._grid.row_counts.sum()))
        self._follow_drift()
        partitions = self[:]  # an iteration would count as a pass
        partitions[0].indexes.check_whole_rows("read by rows")
        rows, order = plan_rows(self._grid, [each.indexes.positions for each in partitions], items)
        answers = [
            partitions[number].submit(pick, some, selected)
            for number, some in (rows or {0: Rows(items, items)}).items()
        ]
        found = concatenate(wrap_datasets(self._executor.gather(answers), self._grid.dim))
        return unwrap_dataset(take_rows(found, order))

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
        self._check_open()
        check_may_wait(self._executor)
        return report(self._partitions, self._passes(), self._capacities)

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
        self._check_open()
        check_rows_option(rows)
        check_block_function(fn, kwargs, *options_of_blocks())
        # To read a stored block takes time, and it has no columns with names.
        needs_example = (dtype is None and meta is None) or not self._blocks.stored
        example = self._blocks.example() if needs_example else None
        axes = self._grid.cut_axes
        template = Template.given(dtype, trailing_shape, meta, axes, example)
        if template is None:
            if example is None:
                raise InvalidArgumentError(
                    f"map_blocks cannot infer what the function returns for this collection; {HINT}"
                )
            template = Template.infer(fn, example, args, kwargs, axes)
        partitions = list(self)
        names = self._names(partitions) if example is None else names_of_block(example)
        divisions = self._blocks.divisions if template.keeps_index else None
        results = []
        for partition in partitions:
            bounds = divisions and [
                divisions[at : at + 2] for at in partition.indexes.positions.tolist()
            ]
            task = (map_over, template, names, bounds, rows, fn)
            results.append((partition, partition.submit(*task, *args, **kwargs)))
        return self._assemble(results, template, None, rows, divisions)

    def _names(self, partitions: Sequence[Partition]) -> Any:
        """Return the future of the columns of the first block, None where no task needs it."""
        if not self._blocks.may_have_columns or self._grid.cut_axes > 1 or len(partitions) < 2:
            return None
        return min(partitions, key=lambda one: _first_block([one])).submit(names_of_first)

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
        dtype : dtype, optional
            Dtype of these arrays.
        trailing_shape : sequence of int
            Their shape without axis 0, and without further axes along which there are several
            blocks.
        meta : DataFrame, Series, Index, ndarray, sparse matrix, tuple or dict, optional
            Instead of `dtype`, as for :meth:`map_blocks`.
        output : int, optional
            Which element of each result to use, if the tasks return tuples of such lists.
        rows : {"same", "unknown"}
            Whether each block has as many rows as that of this collection.

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
        template = Template.given(dtype, trailing_shape, meta, self._grid.cut_axes, None)
        if template is None:
            raise InvalidArgumentError(f"assemble() needs the type of the blocks; {HINT}")
        return self._assemble(results, template, output, rows, None)

    def _assemble(
        self,
        results: Iterable[tuple[Partition, Any]],
        template: Template,
        output: int | None,
        rows: RowCounts,
        divisions: Sequence[Any] | None,
    ) -> Any:
        self._check_open()
        grid = BlockGrid(result_chunks(self._grid, template, rows))
        placed = place_results(self._grid, results)
        made = ResultBlocks(grid, template.dtype, output, template.meta, divisions)
        return self._executor.assemble(placed, made)
