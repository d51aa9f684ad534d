"""``split``: find the backend of a collection, open its blocks, and make a Split of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spliter._errors import InvalidArgumentError
from spliter._materialize import Materialize, check_materialize
from spliter._planner import check_partitions_per_location
from spliter._refusals import check_aligned_arguments
from spliter._split import Split
from spliter.backend.protocols import PersistsCollections
from spliter.backend.registry import load, locator_for


def split(
    collection: Any,
    *aligned: Any,
    partitions_per_location: int | None = None,
    materialize: Materialize = False,
    persist: bool = False,
    backend: str | None = None,
) -> Split:
    """Group the blocks of a collection into partitions, each at one location.

    Nothing is moved, copied or reordered: the engine is asked where each block is, and
    blocks at the same place are grouped (Barcelo, Queralt and Cortes, "Enhancing
    iteration performance on distributed task-based workflows", section 4).

    Parameters
    ----------
    collection : blocked collection
        A Dask array, DataFrame, Series, bag or list of futures whose blocks are in
        memory (``persist`` it first, or see `persist`); a list of in-memory blocks (NumPy arrays,
        pandas DataFrames, sparse matrices); a NumPy memory map; a Zarr array.
    *aligned : blocked collection
        Further collections with the same blocking along axis 0 (labels, weights). The
        partitions then yield tuples of blocks. Blocks that are not where the first
        collection's are get brought there; see :attr:`Split.moved`.
    partitions_per_location : int, optional
        Partitions at each location. By default as many as it has cores (threads);
        never more than it has blocks.
    materialize : bool or "auto", default False
        Whether tasks see each partition as one block, put together at its location once and
        kept there as long as the Split: memory instead of transfers, for blocks so small that
        iterating over them costs more than their rows. ``"auto"`` does so where blocks have
        less than 1,000 rows on average and every location has the memory free: at once below
        38 kB per block, else from the pass on by which that many passes would have paid for
        it; see :attr:`Split.materialization`. Where lengths are not known (DataFrames, lists of
        futures) it asks the blocks for them.
    persist : bool, default False
        Whether to compute lazy collections (of Dask, xarray on Dask, or Ray Data), all together,
        and keep their blocks in the engine's memory. They are freed when the Split is closed or
        garbage, once no task needs them. Changes nothing for collections whose blocks exist, nor
        on engines that have no lazy collections.
    backend : str, optional
        Name of the backend; found from the collection's type by default.

    Returns
    -------
    Split
        A reusable sequence of partitions that keeps the blocks alive.

    Raises
    ------
    UnsupportedCollectionError
        If no backend knows this kind of collection.
    LazyCollectionError
        If its blocks have not been computed, and `persist` is false.
    BackendNotUsableError
        If the backend is unknown, not installed or not usable from here.
    AlignmentError
        If `aligned` are not blocked like `collection` along axis 0.
    BlockLostError, BlockTimeoutError
        If blocks are gone, or do not become available in time.
    InvalidArgumentError
        If `partitions_per_location` is not ``None`` or an int of at least 1, `materialize`
        is none of its values, or ``True`` for blocks in several columns, `persist` is not a
        bool, or an option is given without its name.

    Examples
    --------
    >>> import numpy as np
    >>> from spliter import split
    >>> blocks = [np.arange(4), np.arange(4, 6), np.arange(6, 9)]
    >>> parts = split(blocks, partitions_per_location=2)
    >>> [partition.get_indexes() for partition in parts]
    [[(0,)], [(1,), (2,)]]
    >>> sum(future.result() for future in parts.map(lambda part: sum(b.sum() for b in part)))
    np.int64(36)
    """
    check_partitions_per_location(partitions_per_location)
    check_materialize(materialize)
    _check_persist(persist)
    locator = locator_for(collection, backend)
    check_aligned_arguments(locator.recognises, collection, aligned)
    collections: Sequence[Any] = (collection, *aligned)
    if persist and isinstance(locator, PersistsCollections):
        collections = locator.persist(collections)
        # A Dask collection computed without a cluster is one of this process from now on.
        locator = locator_for(collections[0], backend)
    blocks = locator.open(collections)
    foreign = load(backend).executor if backend is not None else None
    executor = foreign(blocks) if foreign is not None else blocks.executor
    return Split(blocks, executor, partitions_per_location, materialize)


def _check_persist(value: object) -> None:
    if not isinstance(value, bool):
        raise InvalidArgumentError(
            f"persist must be True or False, got {value!r}; True computes lazy collections"
        )
