"""Records of a real PostgreSQL server, and of SQLite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sqlalchemy")
pytest.importorskip("psycopg")

import sqlalchemy

from spliter import InvalidArgumentError, RecordSourceError, split
from spliter_backends.records.sql import SQLSource
from tests.records.servers import HOST, QUOTED, PostgresServer, free_port, postgres_server
from tests.records.suite import Records, RecordSourceTests, check_server_that_dies, looked_up

RECORDS: Records = {number: {"id": number, "square": number**2} for number in range(8)}
STATEMENT = "SELECT id, square FROM people WHERE id IN :keys"


def fill(url: str) -> None:
    engine = sqlalchemy.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("CREATE TABLE people (id INT, square INT, name TEXT)"))
        row = sqlalchemy.text("INSERT INTO people VALUES (:id, :square, 'n' || :id)")
        connection.execute(row, list(RECORDS.values()))
    engine.dispose()


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as running:
        fill(running.url)
        yield running


class TestPostgreSQL(RecordSourceTests):
    missing = (-1, 99)

    @pytest.fixture
    def source(self, server: PostgresServer) -> SQLSource:
        return SQLSource(server.url, STATEMENT, max_batch=3)

    @pytest.fixture
    def records(self) -> Records:
        return RECORDS

    @pytest.fixture
    def count(self, server: PostgresServer) -> Callable[[], int]:
        return lambda: server.count("FROM people WHERE id IN")

    @pytest.fixture
    def unreachable(self, server: PostgresServer) -> tuple[SQLSource, str]:
        port = free_port()
        source = SQLSource(server.url.replace(str(server.port), str(port)), STATEMENT)
        shown = f"postgresql+psycopg://***@{HOST}:{port}/postgres cannot be read: "
        return source, shown

    def test_wrong_password(self, server: PostgresServer) -> None:
        source = SQLSource(server.url.replace(QUOTED, "other-secret"), STATEMENT)
        with pytest.raises(RecordSourceError, match="password authentication failed") as raised:
            source.get(1)
        assert "other-secret" not in str(raised.value)


def test_text_keys_and_decoding(server: PostgresServer) -> None:
    statement = "SELECT square, name FROM people WHERE name IN :keys;"
    source = SQLSource(server.url, statement, key="name", decode=lambda row: row["square"])
    assert source.get_many(["n3", "n0", "none"]) == [9, 0, None]


def test_requests_are_one_message(server: PostgresServer) -> None:
    source = SQLSource(server.url, STATEMENT)
    source.get(1)  # connects
    before = server.count("LOG:")
    assert source.get_many([1, 2, 3]) == [RECORDS[1], RECORDS[2], RECORDS[3]]
    assert server.count("LOG:") - before == 1


def test_server_that_dies_in_the_middle(server: PostgresServer) -> None:
    source = SQLSource(server.url, STATEMENT)
    shown = f"postgresql+psycopg://***@{HOST}:{server.port}/postgres"
    check_server_that_dies(source, RECORDS, server.kill, server.start, shown)


def test_server_that_was_restarted_between_loops(server: PostgresServer) -> None:
    source = SQLSource(server.url, STATEMENT)
    assert source.get(1) == RECORDS[1]
    server.kill()
    server.start()
    assert source.get(2) == RECORDS[2]


def test_server_that_does_not_answer(server: PostgresServer) -> None:
    source = SQLSource(server.url, STATEMENT, max_seconds=0.5)
    assert SQLSource(server.url, STATEMENT).get(1) == RECORDS[1]
    server.pause()
    threads = ThreadPoolExecutor(1)
    try:
        for _ in range(2):
            with pytest.raises(RecordSourceError, match=r"no whole answer within max_seconds=0\.5"):
                threads.submit(source.get, 1).result(60)
    finally:
        server.resume()
        threads.shutdown(wait=False)
    assert SQLSource(server.url, STATEMENT).get(2) == RECORDS[2]


@pytest.fixture
def database(tmp_path: Path) -> str:
    """Make a database of SQLite, which needs no server."""
    url = f"sqlite:///{tmp_path / 'people.db'}"
    fill(url)
    return url


def test_any_database(database: str) -> None:
    source = SQLSource(database, STATEMENT, max_batch=5)
    part = split([[1, 2, 1], [], [7, 99]], partitions_per_location=1)[0]
    found = part.submit(looked_up, source, 2).result()
    assert found == [
        ([1, 2, 1], [RECORDS[1], RECORDS[2], RECORDS[1]]),
        ([], []),
        ([7, 99], [RECORDS[7], None]),
    ]


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM people WHERE id IN :keys",
        "UPDATE people SET id = 1 WHERE id IN :keys",
        "WITH d AS (DELETE FROM people WHERE id IN :keys RETURNING id) SELECT id FROM d",
        "SELECT id INTO copied FROM people WHERE id IN :keys",
        "SELECT id FROM people WHERE id IN :keys FOR UPDATE",
        "SELECT id FROM people WHERE id IN :keys; DROP TABLE people",
        "SELECT id FROM people",
        "SELECT id FROM people WHERE id = :keys",
        "SELECT id FROM people WHERE id IN (:keys)",
        "SELECT id FROM people WHERE id IN :keys AND name = :name",
        "SELECT id FROM people WHERE id IN :keys OR id IN :keys",
        "SELECT id FROM people WHERE name = 'in :keys'",
        "SELECT id FROM people -- WHERE id IN :keys",
        "people",
        None,
    ],
)
def test_statements_that_are_no_keyed_select(statement: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"must be one SELECT .* IN :keys") as raised:
        SQLSource("sqlite:///x.db", statement)
    assert repr(statement) in str(raised.value)


@pytest.mark.parametrize(
    "statement",
    [
        " select id from people where id in :keys ; ",
        "SELECT 'a; :b', id::text FROM people /* of :all */ WHERE id IN :keys",
    ],
)
def test_statements_that_are(statement: str) -> None:
    SQLSource("sqlite:///x.db", statement)


def test_urls_that_are_none() -> None:
    with pytest.raises(InvalidArgumentError, match=r"'\*\*\*' is not a URL") as raised:
        SQLSource("nosuch//:hidden@h", STATEMENT)
    assert "hidden" not in str(raised.value)


@pytest.mark.parametrize(
    ("statement", "key", "message"),
    [
        ("SELECT square, id FROM people WHERE id IN :keys", None, "'square' has 9, .* none of the"),
        ("SELECT id FROM people WHERE id IN :keys", "ident", "key='ident' is none of the columns"),
        ("SELECT p.id FROM people p, people q WHERE p.id IN :keys", None, "3 has several rows"),
    ],
)
def test_rows_that_are_not_of_the_keys(
    database: str, statement: str, key: str | None, message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        SQLSource(database, statement, key).get(3)


def test_statement_that_the_database_refuses(database: str) -> None:
    source = SQLSource(database, "SELECT id FROM nobody WHERE id IN :keys")
    with pytest.raises(RecordSourceError, match="no such table: nobody"):
        source.get(3)
