"""Make chaos runs: ``python -m tests.chaos --backend dask --runs 120 --seed 30000``.

Prints the faults and the seed of each run that breaks a promise, then how the runs ended; exits
with 1 if one broke a promise.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence

from tests.chaos.cases import BACKENDS
from tests.chaos.programs import PROGRAMS
from tests.chaos.runner import Run, run_seeds


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--backend", choices=BACKENDS, default="dask")
    parser.add_argument("--app", choices=PROGRAMS, default="", help="instead of those in turn")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="of the first run")
    options = parser.parse_args(arguments)
    runs = []
    seeds = range(options.seed, options.seed + options.runs)
    for run in run_seeds(options.backend, seeds, options.app):
        runs.append(run)
        if not run.is_good:
            print(f"seed {run.case.seed}: {run}", file=sys.stderr)
    print(summary(runs))
    return 0 if all(run.is_good for run in runs) else 1


def summary(runs: Sequence[Run]) -> str:
    """Return how many faults happened, by kind, and how the runs ended, by error."""
    kinds = Counter(one.kind for run in runs for one in run.injected if one.done)
    ends = Counter(f"{run.outcome} {run.error}".strip() for run in runs)
    left = sum(bool(run.left) for run in runs)
    return (
        f"{len(runs)} runs, {kinds.total()} faults ({_counted(kinds)}): {_counted(ends)}; "
        f"{left} left something behind"
    )


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.most_common())


if __name__ == "__main__":
    sys.exit(main())
