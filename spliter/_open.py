"""``split``: find the backend of a collection, open its blocks, return a Split (``_split.py``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Never

from spliter._checks import check_choice
from spliter._hints import check_aligned_arguments, check_no_keywords
from spliter._plan import Plan
from spliter._planning.options import SplitOptions
from spliter._planning.reuse import Materialize
from spliter._planning.schedule import Schedule, parse_schedule
from spliter._reading.pace import Prefetch, check_prefetch
from spliter._split import Split
from spliter.backend.registry import load, locator_for


def split(
    collection: Any,
    *aligned: Any,
    partitions_per_location: int | None = None,
    schedule: Schedule | str | None = None,
    steal: bool = False,
    materialize: Materialize = False,
    persist: bool = False,
    prefetch: Prefetch = "auto",
    backend: str | None = None,
    **others: Never,
) -> Split:
    """Group the blocks of a collection into partitions, each at one location.

    No block is moved, copied or reordered: ``split`` asks the engine where each block is and
    groups those at the same location (Barcelo, Queralt and Cortes, "Enhancing iteration
    performance on distributed task-based workflows", section 4).

    Parameters
    ----------
    collection : blocked collection
        A Dask array, DataFrame, Series, bag or list of futures whose blocks are in
        memory (``persist`` it first, or see `persist`); a list of in-memory blocks (NumPy arrays,
        pandas DataFrames, sparse matrices); a NumPy memory map; a Zarr array; a DataArray or
        Dataset of xarray; object references or a dataset of Ray; a collection of dataClay or of
        COMPSs.
    *aligned : blocked collection
        Further collections with the same blocking along axis 0 (labels, weights). The
        partitions then yield tuples of blocks. Blocks at other locations than those of the
        first collection are transferred; :attr:`Split.moved` counts them.
    partitions_per_location : int, optional
        Partitions at each location, at most one per block. By default one per core (thread).
    schedule : Schedule or str, optional
        For blocks that take unequal time: cut the blocks of each location into more partitions of
        decreasing size, so that its cores finish together. A name of :class:`Schedule`, such as
        ``"FAC2"``, or a Schedule. Not with `partitions_per_location`. ``"AUTO"`` cuts anew by the
        seconds that each block took in earlier passes, if that promises a shorter pass; not with
        `materialize` or `steal`.
    steal : bool, default False
        With a `schedule`, on Dask: whether partitions of blocks that several workers hold may run
        at any of these, as Dask decides. Such blocks are replicas, and Zarr arrays that workers
        read. Not with `materialize`, nor with aligned collections in memory.
    materialize : bool or "auto", default False
        Whether tasks iterate over one concatenated block per partition. It is made once at its
        location and the copy is kept as long as the Split: more memory, no transfers. It pays
        off for blocks so small that the loop over them costs more than their rows. ``"auto"``
        materializes if blocks have less than 1,000 rows on average and every location has
        enough free memory: on the first pass below 38 kB per block, else on the pass at which
        the copy breaks even; see :attr:`Split.materialization`. If lengths are unknown
        (DataFrames, lists of futures) it first runs one task per partition to count rows.
    persist : bool, default False
        Whether to compute lazy collections (of Dask, xarray on Dask, or Ray Data) in one go and
        keep their blocks in the engine's memory. They are freed when the Split is closed or
        garbage-collected, once no task needs them. No effect on collections whose blocks exist
        and on engines without lazy collections.
    prefetch : "auto", False or int, default "auto"
        How many blocks loops read ahead: as many as keep them from waiting, none, or so many. At
        one location at most 64 MiB, or one block. For Zarr arrays, memory maps, blocks that Dask,
        Ray or dataClay has written to disk, blocks that Ray has at another node, and copies in
        COMPSs tasks over dataClay; no effect on other blocks.
    backend : str, optional
        Name of the backend; found from the collection's type by default.
    **others
        None: others are refused, those of Dask's functions with a hint.

    Returns
    -------
    Split
        A reusable sequence of partitions that keeps the blocks alive.

    Raises
    ------
    UnsupportedCollectionError
        If no backend knows this kind of collection.
    LazyCollectionError
        If its blocks have not been computed and `persist` is false.
    BackendNotUsableError
        If the backend is unknown, not installed or not usable from here.
    AlignmentError
        If `aligned` are not blocked like `collection` along axis 0.
    BlockLostError, BlockTimeoutError
        If blocks are lost, or do not become available in time.
    InvalidArgumentError
        If `partitions_per_location` is not ``None`` or an int of at least 1, or is given with a
        `schedule`; if there is no schedule of that name, or AUTO is given with `materialize` or
        `steal`; if `steal` is ``True`` without a schedule, with another engine, or if each block
        is at one location; if `materialize` is none of its values, or ``True`` for blocks in
        several columns, `persist` is not a bool, `prefetch` is none of its values, or an option is
        given without its name.
    TypeError
        If there is no option of that name.

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
    check_no_keywords("split", others)
    options = SplitOptions(partitions_per_location, parse_schedule(schedule), steal, materialize)
    check_choice("persist", persist, True, False)
    check_prefetch(prefetch)
    locator = locator_for(collection, backend)
    check_aligned_arguments(locator.recognises, collection, aligned)
    collections: Sequence[Any] = (collection, *aligned)
    if persist:
        collections = locator.persist(collections)
        # Without a cluster, a computed Dask collection is in this process: another locator.
        locator = locator_for(collections[0], backend)
    blocks = locator.open(collections)
    blocks.prefetch = prefetch
    foreign = load(backend).executor if backend is not None else None
    executor = foreign(blocks) if foreign is not None else blocks.executor
    return Split(Plan(blocks, executor, options))
