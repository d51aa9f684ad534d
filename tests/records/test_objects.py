"""Records in files, and in a real server of S3's interface."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

pytest.importorskip("fsspec")

from spliter import InvalidArgumentError, RecordSourceError, gather, split
from spliter_backends.records.objects import ObjectSource
from tests.records.servers import PASSWORD, free_port, s3_server
from tests.records.suite import Records, RecordSourceTests, looked_up

RECORDS: Records = {f"n{number}": f"person {number}".encode() for number in range(6)}
CREDENTIALS = {"key": "ada", "secret": "told-nobody"}


@pytest.fixture(scope="module")
def bucket() -> Iterator[dict[str, Any]]:
    """Run a server with a bucket of objects; yield the options that reach it."""
    with s3_server() as url:
        import s3fs

        options: dict[str, Any] = {**CREDENTIALS, "client_kwargs": {"endpoint_url": url}}
        s3fs.S3FileSystem(**options).mkdir("people")
        source = ObjectSource("s3://people/{}.txt", **options)
        for key, record in RECORDS.items():
            source.put(key, record)
        yield options


class Counting(ObjectSource):
    """A source that counts its requests."""

    counted: ClassVar[list[int]] = []

    def get_many(self, keys: Sequence[Any]) -> list[Any]:
        self.counted.append(len(keys))
        return super().get_many(keys)


class TestS3(RecordSourceTests):
    missing = ("none",)
    secrets = (PASSWORD, CREDENTIALS["secret"])

    @pytest.fixture
    def source(self, bucket: Any) -> ObjectSource:
        return Counting("s3://people/{}.txt", max_batch=3, **bucket)

    @pytest.fixture
    def records(self) -> Records:
        return RECORDS

    @pytest.fixture
    def count(self) -> Callable[[], int]:
        return lambda: len(Counting.counted)

    @pytest.fixture
    def unreachable(self) -> tuple[ObjectSource, str]:
        url = f"http://127.0.0.1:{free_port()}"
        options: Any = {"client_kwargs": {"endpoint_url": url}, "secret": PASSWORD, "key": "ada"}
        options["config_kwargs"] = {"retries": {"max_attempts": 0}, "connect_timeout": 1}
        source = ObjectSource("s3://people/{}.txt", **options)
        return source, "s3://people/{}.txt cannot be read: "

    def test_no_password_is_shown(self, source: Any) -> None:
        with pytest.raises(RecordSourceError) as raised:
            ObjectSource("s3://people/{}.txt", **{**source._options, "nosuch": 1}).get("n1")
        for secret in CREDENTIALS.values():
            assert secret not in repr(source) + str(raised.value)

    def test_ranges(self, source: Any) -> None:
        keys = [("n1", 0, 6), ("n2", 7, 8), "n3", ("none", 0, 2)]
        assert source.get_many(keys) == [b"person", b"2", b"person 3", None]


def test_sizes_of_objects(bucket: Any) -> None:
    source = ObjectSource("s3://people/{}.txt", **bucket, max_nbytes=10)
    source.put("empty", b"")
    source.put("large", b"more than ten bytes")
    assert source.get_many(["empty", "n1", "none"]) == [b"", b"person 1", None]
    with pytest.raises(RecordSourceError, match="more than max_nbytes=10 bytes"):
        source.get("large")


@pytest.fixture
def folder(tmp_path: Path) -> str:
    for key, record in RECORDS.items():
        (tmp_path / f"{key}.txt").write_bytes(record)
    return f"file://{tmp_path}/{{}}.txt"


def test_files(folder: str) -> None:
    source = ObjectSource(folder, bytes.decode)
    blocks = [["n1", "none"], [("n2", 0, 3), "n1"]]
    with split(blocks, partitions_per_location=1) as parts:
        found = gather(parts.map(looked_up, source))[0]
    assert [records for _, records in found] == [["person 1", None], ["per", "person 1"]]


@pytest.mark.parametrize("key", ["../n1", "..", "", "a/../../n1", b"../n1", ("../n1", 0, 1)])
def test_keys_that_leave_the_folder(folder: str, key: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="names no record, but a folder"):
        ObjectSource(folder).get(key)


def test_file_systems_that_are_not_known() -> None:
    with pytest.raises(RecordSourceError, match=r"nosuch://.*\*\*\*@host/{} cannot be read: Value"):
        ObjectSource("nosuch://ada:hidden@host/{}").get("n1")
    with pytest.raises(InvalidArgumentError, match="got 'file:///people'"):
        ObjectSource("file:///people")
