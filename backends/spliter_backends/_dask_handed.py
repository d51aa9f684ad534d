"""What runs on Dask workers to hand a small result to others that are known to want it.

A result stays where it was made until a task elsewhere needs it. That task's worker then asks for
it: a question, an answer and a receipt, before each pass of an iteration whose tasks need what all
others have found. Where both tasks were sent in one message it is known beforehand who will ask
(``_dask_message``), and the result goes there as soon as it is there::

    one worker    task ───> result ─> scheduler ──┐
                               └─────────┐        │
    another       task ─> result         take     └─> next task: has what it needs

There it is data like any that was fetched. Nothing depends on it: what comes late, or not at all,
is fetched as ever.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from pickle import dumps, loads
from time import time
from typing import Any, Final

from dask.sizeof import sizeof
from dask.typing import Key
from distributed import Status, Worker, get_worker
from distributed.worker_state_machine import AddKeysMsg, UpdateDataEvent

from spliter_backends._dask_post import Post

MOST_NBYTES: Final = 64 * 2**10
"""Largest result that is handed on; of a larger one the bytes take the time, not the question."""

TOLD_AFTER: Final = 0.25
"""Seconds until the scheduler hears of what has been handed on, of many results at once. It has to
know by then that they have been made: workers are to drop what it does not know."""

_untold: weakref.WeakKeyDictionary[Worker, list[Key]] = weakref.WeakKeyDictionary()


def hand_on(addresses: Sequence[str], fn: Callable[..., Any], *args: Any) -> Any:
    """Call a function, as a task does, and hand on what it returns if that is small.

    Parameters
    ----------
    addresses : sequence of str
        Of workers that will want it.
    fn : callable
        The function.
    *args
        Its arguments.

    Returns
    -------
    object
        What it returns.
    """
    value = fn(*args)
    if sizeof(value) > MOST_NBYTES:
        return value
    try:
        pickled = dumps(value, protocol=5)
    except Exception:  # noqa: BLE001 - whoever fetches it gets the error, with Dask's words
        return value
    worker = get_worker()
    Post.of(worker).send(addresses, take, worker.get_current_task(), pickled)
    return value


def take(worker: Worker, key: Key, pickled: bytes) -> None:
    """Make a result one of a worker's data, unless it is under way there already.

    Parameters
    ----------
    worker : distributed.Worker
        The one that this runs on.
    key : key
        Of the result.
    pickled : bytes
        The result.
    """
    if key in worker.state.tasks or worker.status is not Status.running:
        return
    stimulus = f"spliter-take-{time()}"
    # As if scattered: the one way in for data that the worker has not asked for.
    worker.handle_stimulus(UpdateDataEvent(data={key: loads(pickled)}, stimulus_id=stimulus))
    Post.of(worker).nbytes += worker.state.tasks[key].get_nbytes()
    untold = _untold.setdefault(worker, [])
    if not untold:
        worker.loop.call_later(TOLD_AFTER, _tell, worker)
    untold.append(key)


def _tell(worker: Worker) -> None:
    """Tell the scheduler, which has copies freed with the result."""
    keys = [key for key in _untold.pop(worker) if key in worker.data]
    worker.batched_send(AddKeysMsg(keys=keys, stimulus_id=f"spliter-take-{time()}").to_dict())
