"""See what a program does on Dask without a cluster: on the threads or processes of its own.

There Dask tells a callback of every task. Nothing is sent anywhere, so no bytes are counted.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from dask.callbacks import Callback
from dask.utils import key_split

from spliter_experiments.evaluation.profile import Profile, Seen


class LocalWatcher(Callback):
    """Notes the tasks of Dask's local schedulers in a profile, for the time of a context.

    Parameters
    ----------
    profile : Profile
        Gets the tasks as they finish. Its cores are the most tasks that were seen to run at once.

    Examples
    --------
    >>> import dask.array as da
    >>> from spliter_experiments.evaluation.profile import Profile
    >>> found = Profile()
    >>> x = da.ones(80, chunks=2)
    >>> with LocalWatcher(found):
    ...     float(x.sum().compute(scheduler="synchronous"))
    80.0
    >>> found.cores, found.nbytes
    (1, 0)
    """

    def __init__(self, profile: Profile) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._profile = profile
        self._started: dict[Any, float] = {}

    def _pretask(self, key: Any, dsk: Any, state: Mapping[str, Any]) -> None:
        self._started[key] = time.time()
        self._profile.cores = max(self._profile.cores, len(state["running"]))

    def _posttask(
        self, key: Any, result: Any, dsk: Any, state: Mapping[str, Any], worker: Any
    ) -> None:
        start = self._started.pop(key, None)
        if start is None:
            return
        # The one that the fewest others read comes first: it is the task's own.
        read = sorted(state["dependencies"][key], key=lambda block: len(state["dependents"][block]))
        self._profile.tasks.append(Seen(key_split(key), start, time.time(), tuple(read), 0))
