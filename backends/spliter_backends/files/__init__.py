"""Files read as collections of blocks, in this process or by Dask workers.

``opening``     ``open_blocks``: find the files of a collection
``parquet``     cuts Parquet files into blocks, and reads them
``collection``  ``on_workers``: have Dask workers read a collection
``locator``     opens collections that workers read
``blocks``      assigns stored blocks of any format to workers, and reads them there
"""

from __future__ import annotations

from typing import Any

from spliter.backend import Backend
from spliter_backends.files.collection import on_workers
from spliter_backends.files.opening import open_blocks

__all__ = ["BACKEND", "on_workers", "open_blocks"]


def __getattr__(name: str) -> Any:
    """Import the backend when the registry loads it: unlike ``open_blocks`` it needs Dask."""
    if name != "BACKEND":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from spliter_backends.files.collection import FilesOnWorkers
    from spliter_backends.files.locator import StoredLocator

    return Backend("files", StoredLocator(FilesOnWorkers), lambda _: None)
