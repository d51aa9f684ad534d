"""Programs that follow references read real servers in as few requests as levels need."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

pytest.importorskip("greenlet")
pytest.importorskip("aiodataloader")

from spliter_experiments.ahead.programs import (
    ASYNCHRONOUS,
    MAKE,
    SYNCHRONOUS,
    by_gather,
)
from spliter_experiments.ahead.servers import opened
from spliter_experiments.ahead.workload import run_of
from spliter_experiments.cli import app
from tests.records.servers import postgres_server, redis_server


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with redis_server() as server:
        yield server.url


@pytest.fixture(scope="module")
def postgres_url() -> Iterator[str]:
    pytest.importorskip("psycopg")
    with postgres_server() as server:
        yield server.url


@pytest.mark.parametrize("server", ["redis_url", "postgres_url", "http"])
@pytest.mark.parametrize("name", ["766-4", "293-7", "requirements", "search"])
def test_all_ways_give_the_same_and_levels_fill_requests(
    name: str, server: str, request: pytest.FixtureRequest
) -> None:
    program = MAKE[name]()
    url = server if server == "http" else request.getfixturevalue(server)
    found: dict[str, tuple[Any, int]] = {}
    with (
        asyncio.Runner() as loop,
        opened(url, program.records, program.max_batch, seconds=0.001) as store,
    ):
        for way in [*SYNCHRONOUS, *ASYNCHRONOUS]:
            if way == "gather" and name == "search":
                continue  # asyncio leaves a connection open that is cancelled while it is made
            before = store.source.nrequests
            value = run_of(way, program, store, loop)().value
            found[way] = value, store.source.nrequests - before
        loop.run(store.close())
    assert len({value for value, _ in found.values()}) == 1
    fewest = sum(math.ceil(size / program.max_batch) for size in program.levels())
    assert found["levels"][1] == fewest
    assert found["run"][1] <= fewest
    if name == "search":
        assert found["map"][1] < fewest
    else:
        assert found["map"][1] == fewest
        assert found["one-by-one"][1] == found["gather"][1] == len(program.records)


def test_five_programs_are_as_large_as_those_of_the_paper() -> None:
    for name in ("766-4", "293-7", "502-2", "1268-4", "401-2"):
        levels = MAKE[name]().levels()
        assert f"{sum(levels)}-{len(levels)}" == name


def test_a_program_that_finds_what_it_looks_for_cancels_its_requests() -> None:
    program = MAKE["search"]()

    async def fetch(keys: Any) -> Any:
        await asyncio.sleep(0.001)
        return [program.records[key] for key in keys]

    async def run() -> int:
        with pytest.raises(Exception, match=r"^2\."):
            await by_gather(program, fetch)
        return len(asyncio.all_tasks())

    assert asyncio.run(run()) == 1


def test_command(tmp_path: Any) -> None:
    arguments = ["--workload", "401-2", "--ways", "map,levels", "--rounds", "1", "--server", "http"]
    done = CliRunner().invoke(app, ["compare", "ahead", *arguments, "--latency", "0"])
    assert done.exit_code == 0, done.output
    assert "requests" in done.output
    refused = CliRunner().invoke(app, ["compare", "ahead", "--server", "mysql"])
    assert refused.exit_code == 2
    assert "a URL with a host and a port, got 'mysql'" in " ".join(refused.output.split())
