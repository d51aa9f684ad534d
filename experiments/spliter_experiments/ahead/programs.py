"""Programs whose next record is named by the last one, and the ways to write them.

Each program adds up the values of records that it finds by references, from some on. Five have as
many reads, and chains as long, as the programs of "Sprint: Speculative Prefetching of Remote Data"
(OOPSLA 2011); the records are made up.
"""

from __future__ import annotations

import asyncio
import functools
import random
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import distributions
from itertools import pairwise
from typing import Any, Final, TypeAlias

from spliter import ahead
from spliter.backend import RecordSource

Record: TypeAlias = Mapping[str, Any]
Records: TypeAlias = dict[str, Record]
"""Each has a `value`, and the keys of others, its `refs`."""

Fetch: TypeAlias = Callable[[Sequence[str]], Coroutine[Any, Any, list[Record]]]
"""Reads records in one request of an asynchronous client."""


class FoundError(Exception):
    """The record that a program looks for was found; the program ends."""


@dataclass(frozen=True)
class Program:
    """Records, and those where a program begins.

    A record whose value is `goal` ends the program. `max_batch` is the number of records in a
    request.
    """

    meaning: str
    records: Records
    roots: tuple[str, ...]
    goal: int = -1
    max_batch: int = 500

    def value(self, key: str, record: Record) -> Any:
        """Return the value of a record, a number or an unknown one."""
        if record["value"] == self.goal:
            raise FoundError(key)
        return record["value"]

    def levels(self) -> list[int]:
        """Return how many records are new at each step of references, breadth first."""
        known: set[str] = set()
        level = [*self.roots]
        found = []
        while level:
            known.update(level)
            found.append(len(level))
            named = dict.fromkeys(ref for key in level for ref in self.records[key]["refs"])
            level = [key for key in named if key not in known]
        return found


def one_by_one(program: Program, source: RecordSource) -> int:
    """Read one record at a time, each once."""
    get = functools.cache(source.get)

    def visit(key: str) -> Any:
        record: Any = get(key)
        return program.value(key, record) + sum(map(visit, record["refs"]))

    return sum(map(visit, program.roots))


def by_map(program: Program, source: RecordSource) -> int:
    """Read the records of independent calls together."""
    with ahead(source) as people:

        def visit(key: str) -> Any:
            record = people[key]
            return program.value(key, record) + sum(people.map(visit, record["refs"]))

        found: int = sum(people.map(visit, program.roots))
        return found


def by_run(program: Program, source: RecordSource) -> int:
    """Find the keys in trial runs."""
    with ahead(source) as people:

        def visit(key: str) -> Any:
            record = people[key]
            return program.value(key, record) + sum(map(visit, record["refs"]))

        found: int = people.run(lambda: sum([visit(key) for key in program.roots]))
        return found


def by_levels(program: Program, source: RecordSource) -> int:
    """Read all records of a level of references, then those of the next; then add up."""
    found: Records = {}
    level = [*program.roots]
    while level:
        for at in range(0, len(level), program.max_batch):
            keys = level[at : at + program.max_batch]
            found.update(zip(keys, source.get_many(keys), strict=True))
        named = dict.fromkeys(ref for key in level for ref in found[key]["refs"])
        level = [key for key in named if key not in found]

    def visit(key: str) -> Any:
        return program.value(key, found[key]) + sum(map(visit, found[key]["refs"]))

    return sum(map(visit, program.roots))


async def by_gather(program: Program, fetch: Fetch) -> int:
    """Gather coroutines, each of which requests a record."""
    requests: dict[str, asyncio.Future[list[Record]]] = {}

    async def get(key: str) -> Record:
        if key not in requests:
            requests[key] = asyncio.ensure_future(fetch([key]))
        return (await requests[key])[0]

    try:
        return await _gathered(program, get)
    finally:
        await _cancel(requests.values())


async def by_loader(program: Program, fetch: Fetch) -> int:
    """Gather coroutines that share the requests of a DataLoader."""
    from aiodataloader import DataLoader

    requests: list[asyncio.Future[list[Record]]] = []

    async def load(keys: Sequence[str]) -> list[Record]:
        requests.append(asyncio.ensure_future(fetch(keys)))
        return await requests[-1]

    loader: Any = DataLoader(load, max_batch_size=program.max_batch)
    try:
        return await _gathered(program, loader.load)
    finally:
        await asyncio.gather(*requests, return_exceptions=True)


async def _gathered(program: Program, get: Callable[[str], Awaitable[Record]]) -> int:
    tasks: list[asyncio.Task[int]] = []

    async def visit(key: str) -> Any:
        record = await get(key)
        return program.value(key, record) + await total(record["refs"])

    async def total(keys: Sequence[str]) -> int:
        started = [asyncio.create_task(visit(key)) for key in keys]
        tasks.extend(started)
        return sum(await asyncio.gather(*started))

    try:
        return await total(program.roots)
    finally:
        await _cancel(tasks)


async def _cancel(started: Any) -> None:
    for one in [*started]:
        one.cancel()
    await asyncio.gather(*started, return_exceptions=True)


SYNCHRONOUS: Final = {"one-by-one": one_by_one, "map": by_map, "run": by_run, "levels": by_levels}

ASYNCHRONOUS: Final = {"gather": by_gather, "dataloader": by_loader}


def tree(*levels: int, seed: int = 0) -> tuple[Records, tuple[str, ...]]:
    """Return a tree with so many records at each level, and its roots; parents are drawn."""
    numbers = random.Random(seed)
    keys = [[f"{depth}.{at}" for at in range(size)] for depth, size in enumerate(levels)]
    records: Records = {
        key: {"value": numbers.randrange(1000), "refs": []} for level in keys for key in level
    }
    for parents, children in pairwise(keys):
        for key in children:
            records[numbers.choice(parents)]["refs"].append(key)
    return records, tuple(keys[0])


def requirements() -> tuple[Records, tuple[str, ...]]:
    """Return the requirements of the installed distributions, and those that no other requires."""
    from packaging.requirements import Requirement

    def named(name: str) -> str:
        return re.sub(r"[-_.]+", "-", name).lower()

    installed = {named(one.name): one for one in distributions() if one.name}
    records: Records = {}
    for name, one in sorted(installed.items()):
        needed = [Requirement(text) for text in one.requires or ()]
        wanted = dict.fromkeys(
            named(each.name)
            for each in needed
            if each.marker is None or each.marker.evaluate({"extra": ""})
        )
        refs = [each for each in wanted if each in installed and each != name]
        records[name] = {"value": len(one.version), "refs": refs}
    _cut_circles(records)
    required = {ref for record in records.values() for ref in record["refs"]}
    return records, tuple(name for name in records if name not in required)


def _cut_circles(records: Records) -> None:
    """Drop references that lead back to a record on the way to them."""
    done: set[str] = set()

    def visit(key: str, way: frozenset[str]) -> None:
        record = records[key]
        record["refs"][:] = [ref for ref in record["refs"] if ref not in way]
        for ref in record["refs"]:
            if ref not in done:
                visit(ref, way | {ref})
        done.add(key)

    for key in records:
        if key not in done:
            visit(key, frozenset({key}))


def search() -> Program:
    """Return a program that ends at a record in the second of twenty trees."""
    records, roots = tree(20, 200, 2000)
    leaf = records[records[roots[1]]["refs"][0]]["refs"][0]
    records[leaf] = {"value": 1000, "refs": []}
    return Program("a search that ends early", records, roots, goal=1000, max_batch=50)


MAKE: Final[dict[str, Callable[[], Program]]] = {
    "766-4": lambda: Program("766 reads, chains of 4", *tree(1, 15, 150, 600)),
    "293-7": lambda: Program("293 reads, chains of 7", *tree(1, 4, 12, 30, 56, 80, 110)),
    "502-2": lambda: Program("502 reads, chains of 2", *tree(2, 500)),
    "1268-4": lambda: Program("1,268 reads, chains of 4", *tree(8, 60, 300, 900)),
    "401-2": lambda: Program("401 reads, chains of 2", *tree(1, 400)),
    "requirements": lambda: Program("those of the installed distributions", *requirements()),
    "search": search,
    "chain": lambda: Program("100 reads, one after the other", *tree(*[1] * 100)),
}
"""Programs by name."""
