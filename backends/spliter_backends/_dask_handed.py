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

from collections.abc import Callable, Sequence
from pickle import dumps, loads
from time import time
from typing import Any, Final

from dask.sizeof import sizeof
from dask.typing import Key
from distributed import Status, Worker, get_worker
from distributed.worker_state_machine import AddKeysMsg, UpdateDataEvent

MOST_NBYTES: Final = 64 * 2**10
"""Largest result that is handed on; of a larger one the bytes take the time, not the question."""

TOLD_AFTER: Final = 0.25
"""Seconds until the scheduler hears of what has been handed on, of many results at once. It has to
know by then that they have been made: workers are to drop what it does not know."""

OPERATION: Final = "spliter-take"
"""The name by which a worker is asked to take a result."""


class _Post:
    """Hands results to other workers, and takes what they hand to this one."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._reached: set[str] = set()
        self._untold: list[Key] = []
        self.nbytes = 0

    @classmethod
    def of(cls, worker: Worker) -> _Post:
        """Return the one of a worker, which can be handed results from then on."""
        take: Any = worker.handlers.get(OPERATION)
        if take is None:
            worker.handlers[OPERATION] = take = cls(worker).take
        post: _Post = take.__self__
        return post

    async def send(self, address: str, key: Key, pickled: bytes) -> None:
        """Hand a result to another worker."""
        message = {"op": OPERATION, "reply": False, "key": key, "pickled": pickled}
        pool = self._worker.rpc
        try:
            if address not in self._reached:  # which may never have heard of us
                await pool(address).run(function=_OPEN)
                self._reached.add(address)
            comm = await pool.connect(address)
            try:
                await comm.write(message)
            finally:
                pool.reuse(address, comm)
        except (OSError, RuntimeError):  # one of the two is gone, or about to go
            self._reached.discard(address)

    def take(self, key: Key, pickled: bytes) -> None:
        """Make a result one of the worker's data, unless it is under way here already."""
        worker = self._worker
        if key in worker.state.tasks or worker.status is not Status.running:
            return
        stimulus = f"{OPERATION}-{time()}"
        # As if scattered: the one way in for data that the worker has not asked for.
        worker.handle_stimulus(UpdateDataEvent(data={key: loads(pickled)}, stimulus_id=stimulus))
        self.nbytes += worker.state.tasks[key].get_nbytes()
        if not self._untold:
            worker.loop.call_later(TOLD_AFTER, self._tell)
        self._untold.append(key)

    def _tell(self) -> None:
        """Tell the scheduler, which has copies freed with the result."""
        worker = self._worker
        keys, self._untold = [key for key in self._untold if key in worker.data], []
        worker.batched_send(AddKeysMsg(keys=keys, stimulus_id=f"{OPERATION}-{time()}").to_dict())


def _open_post(dask_worker: Worker) -> None:
    """Let a worker be handed results from now on."""
    _Post.of(dask_worker)


_OPEN: Final = dumps(_open_post)


def handed_nbytes(worker: Worker) -> int:
    """Return the bytes of all results that a worker was handed.

    Parameters
    ----------
    worker : distributed.Worker
        The one that this runs on.

    Returns
    -------
    int
        By the sizes that Dask gives them.
    """
    take: Any = worker.handlers.get(OPERATION)
    return 0 if take is None else int(take.__self__.nbytes)


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
    post, key = _Post.of(worker), worker.get_current_task()
    loop: Any = worker.loop
    for address in addresses:
        loop.add_callback(post.send, address, key, pickled)
    return value
