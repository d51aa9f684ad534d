"""Shut Ray down and start it again; write what uses of blocks and results of before end with."""

from __future__ import annotations

import json
import operator
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import ray

from spliter import Partition, as_completed, gather, reduce, split
from spliter_apps.kmeans import KMeans
from spliter_apps.neighbors import KNeighborsClassifier


def start() -> None:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="critical")


def put() -> list[Any]:
    return [ray.put(np.arange(100.0).reshape(50, 2)) for _ in range(4)]


def total(partition: Partition, *_: Any) -> float:
    return float(sum(block.sum() for block in partition))


def outcome(function: Callable[[], Any]) -> str:
    """Return the type of the error, or the result."""
    try:
        return str(function())
    except Exception as error:  # noqa: BLE001
        return type(error).__name__


def main() -> None:
    start()
    blocks = put()
    parts = split(blocks)
    futures = parts.map(total)
    gather(futures)
    first = futures[0]
    neighbors = KNeighborsClassifier().fit(blocks, [ray.put(np.arange(50) % 2) for _ in range(4)])
    labels = KMeans(n_clusters=2, max_iter=2).fit(blocks).labels_
    uses: dict[str, Callable[[], Any]] = {
        "result": lambda: first.result(timeout=5),
        "gather": lambda: gather(futures),
        "reduce": lambda: reduce(operator.add, futures),
        "exception": lambda: type(first.exception(timeout=5)).__name__,
        "completed": lambda: [future.result() for future in as_completed(futures)],
        "map": lambda: parts.map(total),
        "submit": lambda: parts[0].submit(total),
        "refresh": parts.refresh,
        "compute": labels.compute,
        "split": lambda: split(blocks),
        "predict": lambda: neighbors.predict(np.ones((3, 2))),
    }

    def write() -> None:
        found: dict[str, Any] = {name: outcome(use) for name, use in uses.items()}
        found |= {"done": first.done(), "moved": parts.moved.fetched_blocks}
        found["connected"] = ray.is_initialized()
        sys.stdout.write(f"{json.dumps(found)}\n")

    ray.shutdown()
    write()
    start()
    write()
    new = split(put())
    uses = {
        "future": lambda: new[0].submit(total, first),
        "nested": lambda: new[0].submit(total, {"a": [first]}),
        "captured": lambda: new[0].submit(lambda _: first),
        "reference": lambda: new[0].submit(total, blocks[0]),
        "captured reference": lambda: new[0].submit(lambda _: blocks[0]),
        # Ray knows the reference from here on, and would wait for it.
        "split": lambda: split(blocks),
        "aligned": lambda: split(put(), blocks),
        "new": lambda: sum(gather(new.map(total))),
    }
    write()


if __name__ == "__main__":
    main()
