"""Main program that ``enqueue_compss`` runs: executes all stands of a job.

A COMPSs job has one program, so the stands cannot be separate processes as on other engines.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path


def main(runs_file: str, work: str) -> int:
    """Run all stands, and append their exit statuses to ``ends.tsv``, as batch scripts do.

    The file is a JSON list of stands with ``name`` and ``words``, the arguments after ``spliter``.
    Returns 1 if a stand failed, else 0.
    """
    from spliter_experiments.cli import app

    failed = False
    for stand in json.loads(Path(runs_file).read_text(encoding="utf-8")):
        begin = time.monotonic()
        try:
            status = app(stand["words"], standalone_mode=False) or 0
        except Exception as error:  # noqa: BLE001 - the next stands must run anyway
            sys.stderr.write(f"{stand['name']}: {type(error).__name__}: {error}\n")
            status = 1
        seconds = round(time.monotonic() - begin)
        job = os.environ.get("SLURM_JOB_ID", "")
        with Path(work, "ends.tsv").open("a", encoding="utf-8") as stream:
            stream.write(f"{stand['name']}\t{status}\t{seconds}\t{job}\n")
        failed |= status != 0
    return int(failed)


if __name__ == "__main__":
    from spliter_backends.compss import configure

    # As many tasks at once as COMPSs starts, which may be fewer than the node has cores.
    configure(computing_units=int(sys.argv[3]))
    sys.exit(main(sys.argv[1], sys.argv[2]))
