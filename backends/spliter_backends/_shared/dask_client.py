"""Find out whether the program has a Dask client, without importing Dask."""

from __future__ import annotations

import sys


def has_dask_client() -> bool:
    """Return whether the program has a current client of a Dask cluster."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return False
    try:
        distributed.default_client()
    except ValueError:
        return False
    return True
