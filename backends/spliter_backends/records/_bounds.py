"""Bounds of a request: the seconds until its answer is whole, and the bytes of it.

Time limits of libraries are for each read, so that an answer that comes byte by byte has none; and
they read whole answers into memory. Connections count on the request of their thread instead.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextvars import ContextVar
from typing import Any, Final

MAX_SECONDS: Final = 60.0
"""Of a request. Long next to any answer, short next to a program that would wait for ever."""

MAX_NBYTES: Final = 256 * 2**20
"""Of an answer: 500 records of half a megabyte. A loop may have 32 answers in memory at once."""


class BoundReachedError(Exception):
    """An answer takes too long, or is too large."""


class Bounds:
    """What a request may still take.

    Examples
    --------
    >>> bounds = Bounds(max_seconds=60.0, max_nbytes=10)
    >>> bounds.wait(5.0)
    5.0
    >>> bounds.count(11)
    Traceback (most recent call last):
    spliter_backends.records._bounds.BoundReachedError: the answer has more than max_nbytes=10 bytes
    """

    def __init__(self, max_seconds: float, max_nbytes: int) -> None:
        self._deadline = time.monotonic() + max_seconds
        self._max_nbytes = max_nbytes
        self._nbytes = 0
        self.late: str = f"no whole answer within max_seconds={max_seconds:g}"

    def is_late(self) -> bool:
        """Return whether the time is over."""
        return time.monotonic() >= self._deadline

    def wait(self, timeout: float | None = None) -> float:
        """Return the seconds that a step may wait, at most its own time limit."""
        if self.is_late():
            raise BoundReachedError(self.late)
        left = max(self._deadline - time.monotonic(), 0.001)
        return left if timeout is None else min(left, timeout)

    def count(self, nbytes: int) -> None:
        """Count bytes that have arrived, or that records have."""
        self._nbytes += nbytes
        if self._nbytes > self._max_nbytes:
            raise BoundReachedError(f"the answer has more than max_nbytes={self._max_nbytes} bytes")


BOUNDS: Final[ContextVar[Bounds]] = ContextVar("BOUNDS")


def current_bounds() -> Bounds:
    """Return the bounds of the request of this thread; outside of one, new bounds."""
    return BOUNDS.get(None) or Bounds(MAX_SECONDS, MAX_NBYTES)


def call_in_thread(call: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of a library that has no time limit; leave it to its thread if it is late."""
    done: Future[Any] = Future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            done.set_result(context.run(call, *arguments))
        except BaseException as error:  # noqa: BLE001  raised in the calling thread
            done.set_exception(error)

    threading.Thread(target=run, name="spliter-request", daemon=True).start()
    if not wait([done], current_bounds().wait()).done:
        raise BoundReachedError(current_bounds().late)
    return done.result()


class _Wrapped:
    """Has what it wraps do all that it does not do itself."""

    def __init__(self, of: Any) -> None:
        self._of = of

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)


class BoundedSocket(_Wrapped):
    """A socket whose reads count on the bounds of the request that reads."""

    def recv(self, nbytes: int) -> bytes:
        """Return up to so many bytes."""
        found = bytearray(nbytes)
        return bytes(found[: self.recv_into(found)])

    def recv_into(self, buffer: bytearray) -> int:
        """Fill a buffer; return the number of bytes."""
        usual = self._of.gettimeout()
        timeout = current_bounds().wait(usual)
        if timeout != usual:
            self._of.settimeout(timeout)  # a call of the system, as is the one below
        try:
            nbytes: int = self._of.recv_into(buffer)
        finally:
            if timeout != usual:
                self._of.settimeout(usual)
        current_bounds().count(nbytes)
        return nbytes


class BoundedStream(_Wrapped):
    """A stream of httpcore whose reads count on the bounds of the request that reads."""

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return up to so many bytes."""
        found: bytes = self._of.read(max_bytes, current_bounds().wait(timeout))
        current_bounds().count(len(found))
        return found

    def start_tls(self, *args: Any, timeout: float | None = None, **kwargs: Any) -> BoundedStream:
        """Return the stream, encrypted."""
        left = current_bounds().wait(timeout)
        return BoundedStream(self._of.start_tls(*args, timeout=left, **kwargs))


class BoundedNetwork(_Wrapped):
    """A network backend of httpcore whose streams are bounded."""

    def connect_tcp(self, *args: Any, timeout: float | None = None, **kwargs: Any) -> BoundedStream:
        """Return a stream to a host."""
        left = current_bounds().wait(timeout)
        return BoundedStream(self._of.connect_tcp(*args, timeout=left, **kwargs))

    def connect_unix_socket(self, *args: Any, **kwargs: Any) -> BoundedStream:
        """Return a stream to a socket of this host, which accepts or refuses at once."""
        return BoundedStream(self._of.connect_unix_socket(*args, **kwargs))
