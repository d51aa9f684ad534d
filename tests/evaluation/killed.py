"""A runner to be killed: ``python -m tests.evaluation.killed SCENARIO RESULTS BENCH``."""

from __future__ import annotations

import sys
from pathlib import Path

from spliter_experiments.evaluation.runner import request_for, run_request
from spliter_experiments.harness.records import ResultsFolder
from tests.evaluation.scenes import slowly

if __name__ == "__main__":
    scenario, results, bench = sys.argv[1:]
    request = request_for(scenario, "laptop", "dask")
    folder = ResultsFolder(Path(results))
    run_request(request, folder, open_bench=slowly if bench == "pretended" else None)
