"""Keys of records of any type, and records that are stored while a loop reads them."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spliter import InvalidArgumentError
from spliter.backend import refetch_record
from tests.test_lookup import local_partition

KEYS: Any = np.array([3, 1, 7])


class Kept:
    """Records that are kept in this process; its `get_many` may wait for a turn."""

    max_batch = 2

    def __init__(self, **records: Any) -> None:
        self.records: dict[Any, Any] = records
        self.requests: list[Sequence[Any]] = []

    def get(self, key: Any) -> Any:
        return self.get_many([key])[0]

    def get_many(self, keys: Sequence[Any]) -> list[Any]:
        self.requests.append(keys)
        return [self.records.get(key) for key in keys]

    def put(self, key: Any, record: Any) -> None:
        self.records[key] = record
        refetch_record(self, key)


class Shown(Kept):
    """Records that show their keys, as a template of names does."""

    def get_many(self, keys: Sequence[Any]) -> list[Any]:
        super().get_many(keys)
        return [repr(key) for key in keys]


def looked_up(keys: Any, source: Any) -> list[Any]:
    """Return the records of keys that a function returns for the only block."""
    ((_, records),) = local_partition([[0]]).lookup(source, lambda _: keys)
    return list(records)


@pytest.mark.parametrize(
    "keys",
    [
        list(KEYS),
        set(KEYS),
        iter(KEYS),
        KEYS.astype(object),
        np.array([*KEYS, None], object)[:3],
        KEYS.astype(">i2"),
        np.ma.masked_array(KEYS, [False] * 3),
        {np.uint8(3): 0, np.int64(1): 0, 7: 0},
    ],
    ids=lambda keys: type(keys).__name__,
)
def test_numbers_of_numpy_are_found_in_a_database(keys: Any, tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy")
    import sqlite3

    from spliter_backends.records.sql import SQLSource

    with sqlite3.connect(tmp_path / "people.db") as connection:
        connection.execute("CREATE TABLE people AS SELECT 1 AS id UNION SELECT 3 UNION SELECT 7")
    connection.close()
    source = SQLSource(f"sqlite:///{tmp_path}/people.db", "SELECT id FROM people WHERE id IN :keys")
    found = looked_up(keys, source)
    assert sorted(record["id"] for record in found) == [1, 3, 7]
    assert source.get(np.int64(3)) == {"id": 3}


@pytest.mark.parametrize(
    ("keys", "shown"),
    [
        (np.array(["2020-01-02"], "M8[ns]"), [dt.datetime(2020, 1, 2)]),
        *(
            (np.array(["2020-01"], f"M8[{unit}]"), [dt.datetime(2020, 1, 1)])
            for unit in ("Y", "M", "D", "h", "s", "us")
        ),
        ([dt.date(2020, 1, 2)], [dt.date(2020, 1, 2)]),
        (np.array([1500], "m8[ms]"), [dt.timedelta(seconds=1.5)]),
        ([np.datetime64("2020-01-02", "ns"), np.str_("a")], [dt.datetime(2020, 1, 2), "a"]),
        ([(np.str_("a"), np.int64(0), np.int64(5))], [("a", 0, 5)]),
        (np.array([("a", 1)], "U1,i4"), [("a", 1)]),
        (np.array([b"a"]), [b"a"]),
        ([1, 1.0, True, 1], [1, 1.0, True, 1]),
        ([0.0, -0.0], [0.0, -0.0]),
        ([(1, "a"), (True, "a")], [(1, "a"), (True, "a")]),
    ],
)
def test_keys_are_those_of_single_gets(keys: Any, shown: list[Any]) -> None:
    source = Shown()
    assert looked_up(keys, source) == [*map(repr, shown)] == [source.get(key) for key in shown]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (np.ma.masked_array([1, 2], [False, True]), "masked stands for a missing value"),
        ([1, None], "None stands for a missing"),
        (np.array([1, np.nan]), r"np.float64\(nan\) stands for a missing"),
        (np.array(["NaT"], "M8[ns]"), "NaT.* stands for a missing"),
        ([("name", None)], "None stands for a missing"),
        (np.array([1], "M8[ns]"), "is no time that Python can represent"),
        (np.array(["586524-01-20"], "M8[D]"), "is no time that Python can represent"),
        (np.array([20000], "M8[Y]"), "is no time that Python can represent"),
        (np.array([1], "m8[Y]"), "is no time that Python can represent"),
    ],
)
def test_keys_that_would_be_taken_for_others(keys: Any, message: str) -> None:
    source = Shown()
    with pytest.raises(InvalidArgumentError, match=f"the key .*{message}"):
        looked_up(keys, source)
    assert source.requests == []


def test_missing_keys_of_frames() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"id": pandas.array([1, None], "Int64"), "at": ["2020-01-02", None]})
    for column in (frame["id"], pandas.to_datetime(frame["at"])):
        with pytest.raises(InvalidArgumentError, match="stands for a missing"):
            looked_up(column, Shown())
        assert len(looked_up(column.dropna(), Shown())) == 1


@pytest.mark.parametrize("prefetch", [False, 1, 4])
@pytest.mark.parametrize("in_thread", [False, True])
def test_records_that_the_loop_stores_are_those_of_its_next_blocks(
    prefetch: Any, in_thread: bool
) -> None:
    source = Kept(total=0, other=5)

    def put(total: int) -> None:
        source.put("total", total)

    for number, (block, records) in enumerate(
        local_partition([["other", "total", "none"]] * 8).lookup(source, lambda b: b, prefetch)
    ):
        assert (block[1], records) == ("total", [5, number, None])
        if in_thread:
            thread = threading.Thread(target=put, args=(number + 1,))
            thread.start()
            thread.join()
        else:
            put(number + 1)
    stale = [keys for keys in source.requests if keys == ["total"]]
    assert len(source.requests) - len(stale) == 16  # what was not stored is fetched once
    assert len(stale) == (0 if prefetch is False else 7)


def test_only_loops_over_the_same_source_fetch_again() -> None:
    source, other = Kept(a=1), Kept(a=1)
    loop = local_partition([["a"]] * 3).lookup(source, lambda block: block, 2)
    next(loop)
    other.put("a", 2)
    assert [records for _, records in loop] == [[1], [1]]
    assert len(source.requests) == 3


@pytest.mark.parametrize("stored", [1, "1", np.int64(1), b"1"])
def test_any_key_of_the_same_object(stored: Any) -> None:
    pytest.importorskip("fsspec")
    from spliter_backends.records.objects import ObjectSource

    fetched = threading.Semaphore(0)

    class Counted(ObjectSource):
        def get_many(self, keys: Sequence[Any]) -> list[Any]:
            found = super().get_many(keys)
            fetched.release()
            return found

    source = Counted("memory://stored/{}.txt", bytes.decode)
    source.put(1, b"Ada")
    names: list[Any] = [[1, (1, 0, 2)], [(1, 0, 2), 1]]
    loop = local_partition(names).lookup(source, lambda block: block, 1)
    assert next(loop)[1] == ["Ada", "Ad"]
    assert fetched.acquire(timeout=30) and fetched.acquire(timeout=30)  # of both blocks
    source.put(stored, b"Grace")
    assert next(loop)[1] == ["Gr", "Grace"]
