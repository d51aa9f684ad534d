"""Time what committing a layout costs, and after how many uses compiling it has paid.

    python benchmarks/commit.py --rounds 15

For each case of ``spliter compare layout`` in its middle size, it prints the bytes, the first
commit of the shape (with LLVM), a later one, one for NumPy alone, and after how many uses compiling
has paid: as the packer estimates, and as measured, the time of compiling divided by what the kernel
saves in a use. A dash says never. Medians, with LLVM started before.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import timeit
from collections.abc import Callable
from functools import partial

import numpy as np

from spliter import layout as lo
from spliter.layout._kernels import KERNELS
from spliter_experiments.layouts.patterns import CASES, pattern_of

CALLS = 20
"""Uses that are timed together."""


def seconds(call: Callable[[], object], calls: int = 1) -> float:
    """Return the duration of a call."""
    return timeit.timeit(call, number=calls) / calls


def first_commit(layout: lo.Layout) -> float:
    """Return the duration of the first commit of a shape."""
    KERNELS._kernels.clear()
    return seconds(partial(layout.commit, "llvm"))


def row(case: str, rounds: int) -> list[str]:
    """Measure a case, and return its row."""
    layout = pattern_of(case, 1).layout
    memory, out = pattern_of(case, 1).memory(), np.empty(layout.size, np.uint8)
    packers = [layout.commit("llvm"), layout.commit("numpy")]
    calls: list[Callable[[], float]] = [
        partial(first_commit, layout),
        *(partial(seconds, partial(layout.commit, engine), CALLS) for engine in ("llvm", "numpy")),
        *(partial(seconds, partial(packer.pack, memory, out), CALLS) for packer in packers),
    ]
    times = [[call() for call in calls] for _ in range(rounds + 1)][1:]
    first, later, plain, llvm, numpy = map(statistics.median, zip(*times, strict=True))
    estimate = layout.commit().explain().uses
    measured = round((first - later) / (numpy - llvm)) + 1 if numpy > llvm else None
    uses = ("-" if each is None else f"{each:,}" for each in (estimate, measured))
    return [
        case,
        f"{layout.size:,}",
        *(f"{each * 1e3:.3f}" for each in (first, later, plain)),
        *uses,
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--case", nargs="+", default=[*CASES], choices=CASES)
    options = parser.parse_args()
    lo.contiguous(3, lo.resized("f8", 0, 24)).commit("llvm")
    line = ("{:<16}" + " {:>12}" * 6 + "\n").format
    names = ("bytes", "first, ms", "later, ms", "NumPy, ms", "uses", "measured")
    sys.stdout.write(line("case", *names))
    for case in options.case:
        sys.stdout.write(line(*row(case, options.rounds)))


if __name__ == "__main__":
    main()
