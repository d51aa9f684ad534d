"""``partitioned``: run graphs of an engine with one task per partition."""

from __future__ import annotations

from typing import Any

from spliter._planning.planner import check_partitions_per_location
from spliter.backend.engine import GraphScheduler
from spliter.backend.registry import graph_scheduler


def partitioned(
    client: Any = None, *, partitions_per_location: int | None = None, backend: str | None = None
) -> GraphScheduler:
    """Run any Dask graph with one task per partition instead of one per block and operation.

    The tasks of the graph are grouped into clusters, whose inputs lie in one partition, and each
    cluster runs as one task. The tasks are Dask's own, so the results are its own, to the bit.
    Graphs that would not gain are forwarded to Dask as they are.

    The result is a scheduler for collections of Dask: a context manager, an argument
    ``scheduler=`` of ``compute``, and by its method ``explain(*collections)`` a description of
    what would run. ``persist`` is forwarded to Dask.

    Parameters
    ----------
    client : distributed.Client, optional
        The client to use; by default the one that is current when something is computed.
    partitions_per_location : int, optional
        Partitions at each worker; by default one per thread.
    backend : str, optional
        Name of the backend; found from the client's type by default.

    Returns
    -------
    GraphScheduler

    Raises
    ------
    InvalidArgumentError
        If `client` is not a client, or `partitions_per_location` is not ``None`` or an int of at
        least 1.
    BackendNotUsableError
        If Dask is not installed or the backend runs no graphs; when something is computed, if there
        is no client, or it was closed (:class:`ClientClosedError`).

    Examples
    --------
    >>> import dask.array as da
    >>> from distributed import Client
    >>> from spliter import partitioned
    >>> with Client(processes=False, n_workers=2, dashboard_address=":0"):
    ...     x = da.ones((100, 4), chunks=(1, 4))
    ...     with partitioned():
    ...         x.sum().compute()
    np.float64(400.0)
    """
    check_partitions_per_location(partitions_per_location)
    return graph_scheduler(client, partitions_per_location, backend)
