"""Time what capturing and planning a call of a pipeline costs, and what the rest of it does.

    python benchmarks/capture.py --rounds 15

The body makes 50 calls of ufuncs on 64 numbers, in one batch. Microseconds of processor time per
call, medians (quartiles): capture; planning; the whole, with compiling and running.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import Any

import numpy as np

from spliter.pipeline import options, pipeline
from spliter.pipeline._calls.graph import needed
from spliter.pipeline._capture.annotated import captured
from spliter.pipeline._options import CURRENT
from spliter.pipeline._planning.planner import next_stage
from spliter.pipeline._running.evaluate import LocalGraph

CALLS, RUNS = 50, 100
NUMBERS = np.linspace(1.0, 2.0, 64)


def body(x: Any) -> Any:
    """Make the calls."""
    y = x
    for _ in range(CALLS // 5):
        y = np.sqrt(y * 1.5 + x) - y / 2.0
    return y


def measure() -> tuple[float, float, float]:
    """Return the seconds of capture, of planning and of the whole, for all calls of all runs."""
    run, graphs = pipeline(body), [LocalGraph() for _ in range(RUNS)]
    at = [time.process_time()]
    results = [captured(body, graph, (NUMBERS,), {}) for graph in graphs]
    at.append(time.process_time())
    for graph, result in zip(graphs, results, strict=True):
        next_stage(needed(graph.pending), {result._node}, CURRENT.get())
    at.append(time.process_time())
    for _ in results:
        run(NUMBERS)
    at.append(time.process_time())
    first, second, third = np.diff(at)
    return first, second, third


def main() -> None:
    """Print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    with options(batch=len(NUMBERS), threads=1):
        found = [measure() for _ in range(rounds + 1)][1:]
    for name, seconds in zip(
        ("capture", "planning", "whole"), zip(*found, strict=True), strict=True
    ):
        per_call = [each * 1e6 / (CALLS * RUNS) for each in seconds]
        low, high = np.quantile(per_call, [0.25, 0.75])
        sys.stdout.write(
            f"{name:<10} {statistics.median(per_call):5.1f} us ({low:.1f} to {high:.1f})\n"
        )


if __name__ == "__main__":
    main()
