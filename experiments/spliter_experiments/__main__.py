"""The ``spliter`` command; ``doctor``, ``--help`` and ``--version`` need the core alone.

The other commands need the extra ``experiments``; if a package of it is missing, they print how to
install it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import spliter
from spliter_experiments.doctor import missing_packages

COMMANDS = {
    "compare": "compare SplIter with other ways, on your data",
    "experiment": "reproduce the paper's evaluation",
    "profile": "run a program and say whether SplIter would help it",
    "slurm": "run the paper's evaluation on a cluster with SLURM",
}


def main() -> None:
    missing = missing_packages()
    if missing:
        sys.exit(main_of_core(sys.argv[1:], missing))
    from spliter_experiments.cli import app

    app(prog_name="spliter")


def main_of_core(arguments: Sequence[str], missing: Sequence[str]) -> int:
    """Run the command with the core alone, and return its exit code."""
    lack = f'needs {", ".join(missing)}: pip install "pyspliter[experiments]"'
    parser = argparse.ArgumentParser(
        "spliter", description="Iterate over distributed data where it lies."
    )
    parser.add_argument("--version", action="version", version=f"spliter {spliter.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", dest="command", required=True)
    doctor = commands.add_parser("doctor", help="say which backends can be used here, and why not")
    doctor.add_argument("--scheduler", help="also check this Dask cluster: ADDRESS or FILE")
    doctor.add_argument("--require", help="fail if one of these backends cannot be used")
    doctor.add_argument("--json", action="store_true", help="print JSON")
    for name, what in COMMANDS.items():
        commands.add_parser(name, help=f"{what} (with the extra experiments)", add_help=False)
    given, _ = parser.parse_known_args(arguments)
    if given.command == "doctor":
        from spliter_experiments.doctor import run

        given = parser.parse_args(arguments)
        return run(given.scheduler, given.require, given.json)
    print(f"Error: spliter {given.command} {lack}", file=sys.stderr)  # noqa: T201
    return 2


if __name__ == "__main__":
    main()
