"""What an import costs, and what is documented. (import-linter holds who may import whom.)"""

from __future__ import annotations

import json
import sys

from tests.conftest import ROOT, RunPython

PACKAGES = {
    "spliter": ROOT / "spliter",
    "spliter_backends": ROOT / "backends" / "spliter_backends",
    "spliter_apps": ROOT / "apps" / "spliter_apps",
    "spliter_experiments": ROOT / "experiments" / "spliter_experiments",
    "spliter_slurm": ROOT / "slurm" / "spliter_slurm",
}
IMPORT_AND_TELL = """
import json, sys
before = set(sys.modules)
import {module}
print(json.dumps(sorted({{name.partition(".")[0] for name in set(sys.modules) - before}})))
"""


def loaded_by_import(module: str, run_python: RunPython) -> set[str]:
    done = run_python("-c", IMPORT_AND_TELL.format(module=module))
    assert done.returncode == 0, done.stderr
    loaded: set[str] = set(json.loads(done.stdout))
    return loaded


def test_importing_the_core_imports_numpy_alone(run_python: RunPython) -> None:
    loaded = loaded_by_import("spliter", run_python)
    assert "spliter" in loaded
    assert loaded - set(sys.stdlib_module_names) <= {"spliter", "numpy"}


def test_import_cost_is_seen_where_there_is_one(run_python: RunPython) -> None:
    assert "hypothesis" in loaded_by_import("hypothesis, spliter", run_python)
