"""Sources in memory that count requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from spliter.backend import refetch_record


class Memory:
    """Records of a dictionary."""

    def __init__(self, records: Mapping[Any, Any], max_batch: int = 10) -> None:
        self.records: dict[Any, Any] = dict(records)
        self.max_batch = max_batch
        self.requests: list[list[Any]] = []
        self.writes: list[tuple[Any, Any]] = []

    def get(self, key: Any) -> Any:
        return self.get_many([key])[0]

    def get_many(self, keys: Sequence[Any]) -> list[Any]:
        self.requests.append(list(keys))
        return [self.records.get(key) for key in keys]

    def put(self, key: Any, record: Any) -> None:
        self.records[key] = record
        self.writes.append((key, record))
        refetch_record(self, key)


class Failing(Memory):
    """Calls a function before each request."""

    def __init__(
        self,
        before: Callable[[Sequence[Any]], object],
        records: Mapping[Any, Any],
        max_batch: int = 10,
    ) -> None:
        super().__init__(records, max_batch)
        self.before = before

    def get_many(self, keys: Sequence[Any]) -> list[Any]:
        self.before(keys)
        return super().get_many(keys)


class Plain:
    """Reads and writes one by one, as a region does for programs that know no other way."""

    def __init__(self, source: Memory) -> None:
        self.source = source

    def __getitem__(self, key: Any) -> Any:
        record = self.source.get(key)
        if record is None:
            raise KeyError(key)
        return record

    def get(self, key: Any, default: Any = None) -> Any:
        record = self.source.get(key)
        return default if record is None else record

    def put(self, key: Any, record: Any) -> None:
        self.source.put(key, record)

    def map(self, fn: Callable[..., Any], *iterables: Any) -> list[Any]:
        return list(map(fn, *iterables))

    def run(self, fn: Callable[..., Any], *args: Any) -> Any:
        return fn(*args)
