"""Call the scheduler from the program, within a bounded time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import dask
from dask.utils import parse_timedelta
from distributed import Client

from spliter import BlockTimeoutError, ClientClosedError, InvalidArgumentError

DEFAULT_TIMEOUT: Final = "5 minutes"


def block_timeout() -> float:
    """Return the Dask setting ``spliter.block-timeout`` in seconds.

    The longest wait for the scheduler's answer, and for blocks that are being made (again)
    without any of them getting ready; 5 minutes unless set.

    Raises
    ------
    InvalidArgumentError
        If it is not a time above 0.
    """
    value = dask.config.get("spliter.block-timeout", DEFAULT_TIMEOUT)
    try:
        seconds = float(parse_timedelta(value))
    except (AttributeError, KeyError, TypeError, ValueError):  # parse_timedelta raises all of them
        seconds = 0.0
    if not seconds > 0:
        raise InvalidArgumentError(
            f"the Dask setting spliter.block-timeout is {value!r}; set a time above 0, such as "
            "'5 minutes' or 300"
        )
    return seconds


def call_client(client: Client, fn: Callable[..., Any], *args: Any) -> Any:
    """Run a coroutine function on the client's event loop and wait for it, within bounds.

    Parameters
    ----------
    client : distributed.Client
        Its loop is used; not from that loop's own thread.
    fn : coroutine function
        Called with `args`.

    Returns
    -------
    object
        What it returns.

    Raises
    ------
    BlockTimeoutError
        If the scheduler does not answer within ``spliter.block-timeout``.
    """
    check_open(client)
    timeout = block_timeout()
    try:
        return client.sync(fn, *args, asynchronous=False, callback_timeout=timeout)
    except TimeoutError as error:
        raise no_answer_error(timeout) from error


def no_answer_error(timeout: float) -> BlockTimeoutError:
    """Return the error for a scheduler that has not answered for `timeout` seconds."""
    return BlockTimeoutError(
        f"the scheduler did not answer within {timeout:g} s; the limit is the Dask setting "
        "spliter.block-timeout"
    )


def check_open(client: Client | None) -> Client:
    """Return a client that can be used.

    Raises
    ------
    ClientClosedError
        If it was closed, or no longer exists.
    """
    if client is None or client.status in ("closing", "closed"):
        raise ClientClosedError(
            "the Dask client that this Split (or future) belongs to is closed: make a new client, "
            "persist the collection with it, and split that"
        )
    return client
