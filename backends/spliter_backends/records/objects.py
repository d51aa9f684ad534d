"""Records in an object store or a file system: whole objects, or ranges of them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from spliter.backend import refetch_record
from spliter_backends.records._bounds import MAX_NBYTES, MAX_SECONDS, current_bounds
from spliter_backends.records._source import (
    Decode,
    SourceBase,
    check_no_parent,
    check_template,
    import_library,
    text_of,
)


class ObjectSource(SourceBase):
    """Objects of a store that fsspec knows: S3, Google Cloud, Azure, files, ...

    A key names an object; a key ``(name, start, end)`` the bytes of one from `start` up to `end`.

    Parameters
    ----------
    url : str
        Of an object, with ``{}`` for its name, such as ``"s3://bucket/people/{}.json"``.
    decode : callable, optional
        Makes a record of the bytes of an object; by default they are it.
    max_batch : int, default 64
        Objects that fsspec reads at once.
    max_seconds : float, default 60
        Maximum time of a request to an asynchronous file system, such as those of object stores.
    max_nbytes : int, default 256 MiB
        Maximum size of the objects of a request.
    **options
        Storage options of the file system, such as credentials.

    Examples
    --------
    >>> source = ObjectSource("memory://people/{}.txt", bytes.decode)
    >>> source.put(1, b"Ada")
    >>> source.get_many([1, 2, (1, 0, 2)])
    ['Ada', None, 'Ad']
    """

    def __init__(
        self,
        url: str,
        decode: Decode | None = None,
        *,
        max_batch: int = 64,
        max_seconds: float = MAX_SECONDS,
        max_nbytes: int = MAX_NBYTES,
        **options: Any,
    ) -> None:
        import_library("fsspec", "records")
        check_template(url)
        super().__init__(url, decode, max_batch, max_seconds, max_nbytes, options)

    def put(self, key: Any, record: bytes) -> None:
        """Store the bytes of an object; loops over this source yield them from now on.

        Raises
        ------
        RecordSourceError
            If the store cannot be reached or refuses.
        """
        try:
            self._call(self._put, key, record)
        finally:  # also if the answer did not arrive
            refetch_record(self, key, _name_of)

    def _put(self, connection: Any, key: Any, record: bytes) -> None:
        system, template = self._of_thread(connection)
        _run(system, "pipe_file", self._path(template, key), record)

    def _connect(self) -> Any:
        from fsspec.core import url_to_fs

        return url_to_fs(self._url, **self._options)

    def _disconnect(self, connection: Any) -> None:
        pass  # fsspec closes its sessions

    def _fetch(self, connection: Any, keys: Sequence[Any]) -> list[Any]:
        system, template = self._of_thread(connection)
        ranges = [self._range(*key) if isinstance(key, tuple) else self._range(key) for key in keys]
        names, starts, ends = map(list, zip(*ranges, strict=True))
        paths = [self._path(template, name) for name in names]
        found = _run(system, "cat_ranges", paths, starts, ends, on_error="return")
        return [_record(system, *one) for one in zip(paths, found, strict=True)]

    def _range(self, name: Any, start: int | None = None, end: int | None = None) -> Any:
        """Return a name and the range of its bytes to read: one more than there may be at most."""
        start, most = start or 0, self.max_nbytes + 1
        if start >= 0 and (end is None or end - start > most):
            end = start + most
        return name, start, end

    def _of_thread(self, connection: Any) -> Any:
        """Return a file system that this thread may use, and the path in it."""
        # Those that are not asynchronous have a connection that threads cannot share; fsspec has an
        # instance for each thread.
        return connection if connection[0].async_impl else self._connect()

    def _path(self, template: str, key: Any) -> str:
        return template.format(check_no_parent(text_of(key)))


def _name_of(key: Any) -> str:
    return text_of(key[0] if isinstance(key, tuple) else key)


def _run(system: Any, method: str, *arguments: Any, **options: Any) -> Any:
    """Call a method of a file system; of an asynchronous one, within the time of the request."""
    from fsspec.asyn import sync

    if not system.async_impl:
        return getattr(system, method)(*arguments, **options)
    call = functools.partial(getattr(system, f"_{method}"), *arguments, **options)
    return sync(system.loop, call, timeout=current_bounds().wait())


def _record(system: Any, path: str, found: Any) -> Any:
    """Return what was read; None if there is no such object."""
    if isinstance(found, FileNotFoundError):
        return None
    if isinstance(found, Exception):
        # Object stores have no range of an empty object.
        if "range" in str(found).lower() and _run(system, "info", path)["size"] == 0:
            return b""
        raise found
    current_bounds().count(len(found))
    return found
