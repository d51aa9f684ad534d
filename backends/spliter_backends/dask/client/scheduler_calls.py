"""Call the scheduler from the program, with a timeout."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any, Final

import dask
from dask.utils import parse_timedelta
from distributed import Client

from spliter import BlockTimeoutError, ClientClosedError, InvalidArgumentError
from spliter.backend import check_process

DEFAULT_TIMEOUT: Final = "5 minutes"


def block_timeout() -> float:
    """Return the Dask setting ``spliter.block-timeout`` in seconds.

    The maximum wait for the scheduler's answer, and for pending blocks of which none becomes
    ready; 5 minutes by default.
    """
    value = dask.config.get("spliter.block-timeout", DEFAULT_TIMEOUT)
    try:
        seconds = float(parse_timedelta(value))
    except (AttributeError, KeyError, TypeError, ValueError):  # parse_timedelta raises all of them
        seconds = 0.0
    if not seconds > 0:
        raise InvalidArgumentError(
            "the Dask setting spliter.block-timeout must be a duration above 0, such as "
            f"'5 minutes' or 300; got {value!r}"
        )
    return seconds


def call_client(client: Client, fn: Callable[..., Any], *args: Any) -> Any:
    """Run a coroutine function on the client's event loop and wait for its result.

    The calling thread must not be the loop's. Raises `BlockTimeoutError` if the scheduler does not
    answer within ``spliter.block-timeout``.
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
        f"the scheduler did not answer within {timeout:g} s; check that it is running, or raise "
        "the Dask setting spliter.block-timeout"
    )


_owners: weakref.WeakKeyDictionary[Client, int] = weakref.WeakKeyDictionary()
"""Process in which each client was first used."""


def is_closed(client: Client | None) -> bool:
    """Return whether a client was closed, or no longer exists."""
    return client is None or client.status in ("closing", "closed")


def check_open(client: Client | None) -> Client:
    """Return the client if it is open, and was not used before this process was forked."""
    if client is None or is_closed(client):
        raise ClientClosedError(
            "the Dask client of this Split or future is closed; connect a new client, persist the "
            "collection with it, and split that"
        )
    check_process(_owners.setdefault(client, os.getpid()), "client")
    return client
