"""Options of Dask's functions that tasks do not accept, with what takes their place."""

from __future__ import annotations

from typing import Final

_ANNOTATE: Final = "in Dask, start the task inside 'with dask.annotate({name}={value!r}):'"
_PINNED: Final = "omit it: a task runs where its partition is"
_SHAPE: Final = "pass dtype= and trailing_shape=, the shape of the result for one row"
_NAMED: Final = "omit it: the engine names its tasks"

SUBMIT_OPTIONS: Final = {
    "allow_other_workers": _PINNED,
    "priority": _ANNOTATE,
    "pure": "omit it: every call runs",
    "resources": _ANNOTATE,
    "retries": _ANNOTATE,
    "workers": _PINNED,
}
"""Options of ``distributed.Client.submit``."""

BLOCK_OPTIONS: Final = {
    "chunks": f"{_SHAPE}; and rows='unknown' if the function selects rows",
    "drop_axis": _SHAPE,
    "new_axis": _SHAPE,
    "enforce_ndim": "omit it: the shapes of results are checked",
    "name": _NAMED,
    "token": _NAMED,
}
"""Options of Dask's ``map_blocks``."""

BLOCK_PARAMETERS: Final = "block_info", "block_id", "partition_info"
"""Parameters for which Dask's ``map_blocks`` and ``map_partitions`` give the place of a block."""
