"""How the blocks of a comparison are spread over the workers."""

from __future__ import annotations

from enum import StrEnum


class Placement(StrEnum):
    """How blocks are spread over the workers."""

    EVEN = "even"
    """In turn, each worker as many as it has threads."""
    DASK = "dask"
    """Where Dask happens to make them, which is a tenth uneven or more."""
    DATACLAY = "dataclay"
    """At random, as dataClay does where it is not told."""
    COMPSS = "compss"
    """Where COMPSs' scheduler has the tasks run that make them."""
