"""A Zarr store that logs which chunks are read, and by which process."""

from __future__ import annotations

import os
from typing import Any

from zarr.storage import WrapperStore


class CountingStore(WrapperStore[Any]):
    """Wraps a store; each read adds a line to a file, which processes share.

    Parameters
    ----------
    store : zarr.abc.store.Store
        Where chunks are.
    log : str
        Path of the file.
    """

    def __init__(self, store: Any, log: str) -> None:
        super().__init__(store)
        self.log = log

    def _with_store(self, store: Any) -> CountingStore:
        return type(self)(store, self.log)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__.copy()

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        """Log the read, and read."""
        line = f"{key} {os.getpid()}\n".encode("ascii")
        # One write to a file that is only appended to: lines of several processes do not mix.
        file = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(file, line)
        finally:
            os.close(file)
        return await super().get(key, prototype, byte_range)
