"""Records in a table of a database: one SELECT with IN for a batch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from spliter import InvalidArgumentError
from spliter.backend import plain_key
from spliter_backends.records._bounds import (
    MAX_NBYTES,
    MAX_SECONDS,
    BoundReachedError,
    call_in_thread,
    current_bounds,
)
from spliter_backends.records._connections import CONNECTIONS
from spliter_backends.records._source import Decode, SourceBase, import_library

POOL: Final = {"pool_size": 16, "max_overflow": 0}
"""Connections of a process at most; threads wait for one. A PostgreSQL server has 100 in all."""

CONNECT_SECONDS: Final = 5
"""Bound of connecting, with drivers that have this option."""

_EXAMPLE: Final = "SELECT id, name FROM people WHERE id IN :keys"

_QUOTED: Final = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|--[^\n]*|/\*.*?\*/""", re.DOTALL
)
_KEYED: Final = re.compile(r"\bin\s+:keys\b", re.IGNORECASE)
_PARAMETER: Final = re.compile(r"(?<!:):(\w+)")
_WRITES: Final = re.compile(r"\b(into|insert|update|delete|merge|drop|call)\b", re.IGNORECASE)


class SQLSource(SourceBase):
    """Rows of any database that SQLAlchemy knows. A record is a dictionary of columns.

    Give it an account that may only read.

    Parameters
    ----------
    url : str
        As for ``sqlalchemy.create_engine``.
    statement : str
        A SELECT with ``IN :keys``, such as ``"SELECT id, name FROM people WHERE id IN :keys"``.
    key : str, optional
        The column that has the key; by default the first one. Each key has at most one row.
    decode : callable, optional
        Makes a record of the dictionary.
    max_batch : int, default 500
        Keys in a statement; databases have a limit, from 999 on.
    max_seconds : float, default 60
        Maximum time of a request. A statement that takes longer is left to the database.
    **options
        Further arguments of ``sqlalchemy.create_engine``.

    Examples
    --------
    >>> SQLSource("postgresql+psycopg://ada:told@base/people", "SELECT * FROM p WHERE id IN :keys")
    SQLSource('postgresql+psycopg://***@base/people', 'SELECT * FROM p WHERE id IN :keys')
    """

    def __init__(
        self,
        url: str,
        statement: str,
        key: str | None = None,
        decode: Decode | None = None,
        *,
        max_batch: int = 500,
        max_seconds: float = MAX_SECONDS,
        **options: Any,
    ) -> None:
        import_library("sqlalchemy", "sql")
        super().__init__(url, decode, max_batch, max_seconds, MAX_NBYTES, options)
        _check_url(url, self.shown_url)
        _check_statement(statement)
        self._statement = statement
        self._column = key

    def _connect(self) -> Any:
        import sqlalchemy

        url = sqlalchemy.make_url(self._url)
        settings: dict[str, Any] = {} if url.get_backend_name() == "sqlite" else dict(POOL)
        if url.get_driver_name() in {"psycopg", "psycopg2", "pymysql", "mysqldb"}:
            settings["connect_args"] = {"connect_timeout": CONNECT_SECONDS}
        # Without transactions, which would take two more messages for each batch.
        settings |= {"isolation_level": "AUTOCOMMIT", "hide_parameters": True}
        return sqlalchemy.create_engine(url, **{**settings, **self._options})

    def _disconnect(self, connection: Any) -> None:
        connection.dispose()

    def _fetch(self, connection: Any, keys: Sequence[Any]) -> list[Any]:
        plain = [plain_key(key) for key in keys]
        try:
            rows = call_in_thread(self._select, connection, plain)
        except BoundReachedError:
            CONNECTIONS.drop(self._key)  # the thread has one of its connections
            raise
        return self._by_key(rows, plain)

    def _select(self, connection: Any, keys: Sequence[Any]) -> list[dict[str, Any]]:
        from sqlalchemy.exc import DBAPIError

        try:
            return self._rows(connection, keys)
        except DBAPIError as error:
            if not error.connection_invalidated:
                raise
            return self._rows(connection, keys)  # the server was restarted since the last loop

    def _rows(self, connection: Any, keys: Sequence[Any]) -> list[dict[str, Any]]:
        from sqlalchemy import bindparam, text

        statement = text(self._statement).bindparams(bindparam("keys", expanding=True))
        with connection.connect() as connected:
            rows = connected.execute(statement, {"keys": list(keys)}).mappings()
            found = [dict(row) for row in rows.fetchmany(len(keys) + 1)]
            if current_bounds().is_late():
                connected.invalidate()  # nobody else will close it
            return found

    def _by_key(self, rows: list[dict[str, Any]], keys: Sequence[Any]) -> list[Any]:
        """Return the row of each key."""
        found: dict[Any, Any] = dict.fromkeys(keys)
        for row in rows:
            column = next(iter(row)) if self._column is None else self._column
            if column not in row:
                raise InvalidArgumentError(
                    f"key={column!r} is none of the columns {', '.join(row)} of the statement"
                )
            key = row[column]
            if key not in found:
                raise InvalidArgumentError(
                    f"column {column!r} has {key!r}, which is none of the keys; pass as key= the "
                    "column that the statement compares with them, and keys of its type"
                )
            if found[key] is not None:
                raise InvalidArgumentError(
                    f"the key {key!r} has several rows; write a statement that has one row for each"
                )
            found[key] = row
        return [found[key] for key in keys]

    def __repr__(self) -> str:
        """Return the URL as far as it is shown, and the statement."""
        return f"SQLSource({self.shown_url!r}, {self._statement!r})"


def _check_url(url: str, shown: str) -> None:
    import sqlalchemy

    try:
        sqlalchemy.make_url(url)
    except (sqlalchemy.exc.ArgumentError, ValueError):
        made = None
    else:
        made = url
    if made is None:
        raise InvalidArgumentError(f"{shown!r} is not a URL of SQLAlchemy")


def _check_statement(statement: object) -> None:
    """Reject what is not one SELECT of rows by their keys."""
    text = _QUOTED.sub(" ", statement) if isinstance(statement, str) else ""
    body = text.strip().removesuffix(";")
    is_keyed = len(_KEYED.findall(body)) == 1 and _PARAMETER.findall(body) == ["keys"]
    is_select = re.match(r"select\b", body, re.IGNORECASE) is not None
    if not is_select or not is_keyed or ";" in body or _WRITES.search(body):
        raise InvalidArgumentError(
            "the statement must be one SELECT whose only parameter is IN :keys, such as "
            f"{_EXAMPLE!r}, got {statement!r}"
        )
