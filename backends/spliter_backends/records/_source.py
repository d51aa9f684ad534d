"""Base class of sources: options that can be pickled, one connection, errors without secrets."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import hashlib
import importlib
import inspect
import pickle
import string
import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, TypeAlias

from spliter import InvalidArgumentError, PackageMissingError, RecordSourceError, SplIterError
from spliter.backend import check_count, plain_key
from spliter_backends.records._bounds import BOUNDS, BoundReachedError, Bounds
from spliter_backends.records._connections import CONNECTIONS
from spliter_backends.records._secrets import HIDE, Hide, hider, shown

Decode: TypeAlias = Callable[[Any], Any]


class SourceBase(ABC):
    """A source that is read over a connection.

    url: Where the records are; shown without user, parameters, query and fragment.
    decode: Makes a record of what was read.
    max_batch: Maximum number of keys in a request.
    max_seconds: Maximum time of a request.
    max_nbytes: Maximum size of the records of a request.
    options: Settings of the connection, for the library that opens it.
    """

    def __init__(
        self,
        url: str,
        decode: Decode | None,
        max_batch: int,
        max_seconds: float,
        max_nbytes: int,
        options: Mapping[str, Any],
    ) -> None:
        kind = type(self).__name__
        self._url = url
        self._decode = decode
        self._options = dict(options)
        self._key = _key_of((kind, url, self._options))
        self.max_batch: int = max_batch
        self.max_seconds: float = max_seconds
        self.max_nbytes: int = max_nbytes
        if not isinstance(url, str):
            raise InvalidArgumentError(f"the URL of {kind} must be a str, got {type(url).__name__}")
        check_count("max_batch", max_batch)
        check_count("max_nbytes", max_nbytes)
        is_number = isinstance(max_seconds, int | float) and not isinstance(max_seconds, bool)
        if not is_number or not 0 < max_seconds <= threading.TIMEOUT_MAX:
            raise InvalidArgumentError(f"max_seconds must be a number > 0, got {max_seconds!r}")
        if decode is not None and (not callable(decode) or inspect.iscoroutinefunction(decode)):
            kind = "a coroutine function" if callable(decode) else type(decode).__name__
            raise InvalidArgumentError(f"decode must be a plain function, got {kind}")

    @abstractmethod
    def _connect(self) -> Any:
        """Return a client of the library, which connects by itself."""

    @abstractmethod
    def _disconnect(self, connection: Any) -> None:
        """Close the connections of a client."""

    @abstractmethod
    def _fetch(self, connection: Any, keys: Sequence[Any]) -> list[Any]:
        """Return what is stored for each key, not decoded; None for missing keys."""

    @property
    def shown_url(self) -> str:
        """Scheme, host and path of the URL."""
        return shown(self._url)

    @functools.cached_property
    def _hider(self) -> Hide:
        return hider(self._url, self._options)

    def _hide(self, text: str) -> str:
        return self._hider(text)  # made for the first error or record of a log

    def __getstate__(self) -> dict[str, Any]:
        """Return URL and options."""
        return {name: value for name, value in vars(self).items() if name != "_hider"}

    def get(self, key: Any) -> Any:
        """Return the record of a key, or None.

        Raises
        ------
        RecordSourceError
            If the source cannot be read, or an answer takes too long or is too large.
        """
        return self.get_many([key])[0]

    def get_many(self, keys: Sequence[Any]) -> list[Any]:
        """Return the record of each key, or None.

        Raises
        ------
        RecordSourceError
            If the source cannot be read, or an answer takes too long or is too large.
        """
        found: list[Any] = self._call(self._fetch, keys) if keys else []
        if self._decode is None:
            return found
        return [None if one is None else self._decode(one) for one in found]

    def _call(self, do: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function with the connection; translate errors of the library."""
        bounds = Bounds(self.max_seconds, self.max_nbytes)
        context = contextvars.copy_context()
        try:
            context.run(HIDE.set, self._hide)
            context.run(BOUNDS.set, bounds)
            opened = context.run(CONNECTIONS.get, self._key, self._connect, self._disconnect)
            return context.run(do, opened, *arguments)
        except SplIterError:
            raise
        except Exception as error:  # noqa: BLE001  each library has its own
            is_ours = isinstance(error, BoundReachedError)
            text = str(error) if is_ours else self._hide(f"{type(error).__name__}: {error}")
            text = bounds.late if bounds.is_late() else text
        # Not raised above: the library's error would be its context, with all its texts.
        raise RecordSourceError(
            f"{self.shown_url} cannot be read: {text}; check that this machine reaches it, and its "
            "options"
        )

    def __repr__(self) -> str:
        """Return the kind and the URL, as far as it is shown."""
        return f"{type(self).__name__}({self.shown_url!r})"


def _key_of(settings: tuple[Any, ...]) -> str:
    """Return a key that equal settings share, also in other processes."""
    try:
        return hashlib.sha256(pickle.dumps(settings)).hexdigest()
    except (pickle.PicklingError, AttributeError, TypeError):  # of this process only
        return uuid.uuid4().hex


def check_scheme(kind: str, url: str, schemes: Sequence[str]) -> None:
    """Reject URLs of other schemes; the error has the URL, as far as it is shown."""
    if isinstance(url, str) and url.partition("://")[0] not in schemes:
        raise InvalidArgumentError(
            f"the URL of {kind} must begin with {' or '.join(f'{one}://' for one in schemes)}, got "
            f"{shown(url)!r}"
        )


def check_template(template: object) -> None:
    """Reject templates, which may be URLs, without exactly one place for a key.

    Examples
    --------
    >>> check_template("person:{}")
    """
    got = type(template).__name__
    if isinstance(template, str):
        got = repr(shown(template))
        with contextlib.suppress(ValueError):
            fields = [name for _, name, *_ in string.Formatter().parse(template)]
            if [name for name in fields if name is not None] == [""]:
                return
    raise InvalidArgumentError(
        f"a template must be a str with one {{}} for the key, such as 'person:{{}}', got {got}"
    )


def text_of(key: Any) -> str:
    """Return a key as text: bytes are decoded, NumPy's scalars are printed as Python's.

    Examples
    --------
    >>> text_of(b"ada"), text_of(7)
    ('ada', '7')
    """
    plain = plain_key(key)
    return plain.decode() if isinstance(plain, bytes) else str(plain)


def check_no_parent(text: str) -> str:
    """Return a key as text, unless it is empty or would leave its folder."""
    if not text or not {".", ".."}.isdisjoint(text.replace("\\", "/").split("/")):
        raise InvalidArgumentError(
            f"the key {text!r} names no record, but a folder; use other keys"
        )
    return text


def import_library(name: str, extra: str) -> ModuleType:
    """Import the library of a source; the error has the extra that installs it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise PackageMissingError(
            f"this source of records needs {error.name}, which is not installed; "
            f"pip install 'pyspliter[{extra}]'"
        ) from None
