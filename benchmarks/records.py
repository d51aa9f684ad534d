"""Time `partition.lookup` of a Redis server behind a network's latency against code by hand.

    python benchmarks/records.py --latency 1 --rounds 7

A loop over blocks of keys sorts each block and needs the records of its keys. Ways: `lookup` as it
is; `lookup` without reading ahead; batches by hand, with a window of threads; single gets, of which
as few blocks are timed as take as long. Interleaved rounds; prints the median time of a block, and
how many times as long as `lookup` each way takes: quartiles over the rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import redis

sys.path.append(str(Path(__file__).resolve().parent.parent))

from spliter import Partition, split
from spliter_backends.records.redis import RedisSource
from tests.records.proxy import delayed
from tests.records.servers import redis_server

RECORDS = 5000
WINDOW = 8

Block = npt.NDArray[np.int64]
Items = Iterator[tuple[Block, list[Any]]]


def by_lookup(url: str, part: Partition, prefetch: Any = "auto") -> Items:
    """Look the records up."""
    source = RedisSource(url, "person:{}", json.loads)
    return part.lookup(source, lambda block: block, prefetch)


def by_hand(url: str, part: Partition) -> Items:
    """Fetch a batch for each block, those of the next blocks in threads."""
    client = redis.Redis.from_url(url)

    def fetch(keys: Sequence[int]) -> dict[int, Any]:
        distinct = list(dict.fromkeys(keys))
        values: Any = client.mget([f"person:{key}" for key in distinct])
        return {key: json.loads(value) for key, value in zip(distinct, values, strict=True)}

    pending: deque[tuple[Block, list[int], Future[dict[int, Any]]]] = deque()
    with ThreadPoolExecutor(WINDOW) as pool:
        blocks = iter(part)
        while True:
            while len(pending) < WINDOW and (block := next(blocks, None)) is not None:
                keys = block.tolist()
                pending.append((block, keys, pool.submit(fetch, keys)))
            if not pending:
                return
            block, keys, request = pending.popleft()
            found = request.result()
            yield block, [found[key] for key in keys]


def by_single_gets(url: str, part: Partition) -> Items:
    """Fetch one record after the other."""
    client = redis.Redis.from_url(url)
    for block in part:
        values: Any = map(client.get, (f"person:{key}" for key in block.tolist()))
        yield block, [json.loads(value) for value in values]


def seconds_per_block(items: Items, work: Callable[[Block], Any], most: int) -> float:
    """Return the time of a block of a loop that is left after some."""
    start = time.perf_counter()
    for number, (block, records) in enumerate(items, start=1):
        assert records[0]["id"] == block[0] and len(records) == len(block)
        work(block)
        if number == most:
            break
    return (time.perf_counter() - start) / number


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--latency", type=float, default=1.0, metavar="MS")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--blocks", type=int, default=200)
    parser.add_argument("--keys", type=int, default=100, help="of a block")
    parser.add_argument("--work", type=float, default=1.0, metavar="MS", help="on a block")
    options = parser.parse_args(arguments)
    drawn = np.random.default_rng(0).integers(0, RECORDS, (options.blocks, options.keys))

    def work(block: Block) -> None:
        until = time.perf_counter() + options.work / 1000
        while time.perf_counter() < until:
            np.sort(np.tile(block, 20))

    ways: dict[str, Callable[[str, Partition], Items]] = {
        "lookup": by_lookup,
        "lookup, prefetch=False": lambda url, part: by_lookup(url, part, False),
        "by hand": by_hand,
        "single gets": by_single_gets,
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    with redis_server() as server, delayed(server.port, options.latency / 1000) as port:
        client = redis.Redis.from_url(server.url)
        client.mset({f"person:{one}": json.dumps({"id": one}) for one in range(RECORDS)})
        url = server.url.replace(str(server.port), str(port))
        for one in range(options.rounds + 1):
            for name, way in ways.items():
                part = split(list(drawn), partitions_per_location=1)[0].at_location()
                most = max(options.blocks // 40, 2) if name == "single gets" else options.blocks
                taken = seconds_per_block(way(url, part), work, most)
                if one:  # the first round connects
                    times[name].append(taken)
    for name, durations in times.items():
        ratios = [one / base for one, base in zip(durations, times["lookup"], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        sys.stdout.write(
            f"{name:<24}{1000 * statistics.median(durations):8.2f} ms per block, "
            f"{middle:6.2f} ({low:.2f} to {high:.2f}) times lookup\n"
        )


if __name__ == "__main__":
    main()
