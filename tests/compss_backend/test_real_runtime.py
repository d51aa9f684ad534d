"""The checks in ``real`` on a real COMPSs runtime: pytest inside one ``runcompss`` each.

They run where COMPSS_HOME is set. The files named by COMPSS_PROJECT and COMPSS_RESOURCES say what
the nodes are; each node needs a software (``<Application>``) of its own there, which is how the
conformance suite puts blocks where it wants them. Without these files COMPSs has one node, this
machine, and what needs such names is skipped.

Objects in dataClay are checked with a dataClay that is started for the purpose, a backend for each
node, and the storage interface, compiled from its source with the JDK of the runtime.

COMPSs' ports are fixed, so nothing else may run on it at the same time.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from spliter_backends._shared.compss_requirements import JVM_OPTION
from spliter_experiments.compare.engines.compss_launch import OPTIONS
from spliter_experiments.harness.records import ResultsFolder
from tests.compss_backend.real.nodes import nodes_by_software
from tests.conftest import ROOT, SOURCE_ROOTS
from tests.running import run_command

REAL = Path(__file__).parent / "real"
STORAGE = ROOT / "backends" / "spliter_backends" / "compss" / "storage" / "StorageItf.java"
SECONDS = 1800
"""Bound for one application; the comparison with scikit-learn takes some 600."""

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(
        "COMPSS_HOME" not in os.environ,
        reason="no COMPSs runtime here: COMPSS_HOME is not set",
    ),
    pytest.mark.timeout(SECONDS + 60),
]


def run_inside(folder: Path, *arguments: str, options: Sequence[str] = ()) -> None:
    """Run pytest as the main program of an application; its exit status is runcompss'."""
    runcompss = shutil.which("runcompss")
    assert runcompss, "COMPSS_HOME is set, but there is no runcompss on PATH"
    path = os.pathsep.join(map(str, SOURCE_ROOTS))
    files = {"project": "COMPSS_PROJECT", "resources": "COMPSS_RESOURCES"}
    command = [
        runcompss,
        "--lang=python",
        # Without a log Python runs with -O, and asserts are gone.
        "--log_level=debug",
        "--master_name=localhost",
        "--cpu_affinity=disabled",
        f"--python_interpreter={sys.executable}",
        f"--pythonpath={path}",
        f"--log_dir={folder}",
        JVM_OPTION,
        *(f"--{option}={os.environ[name]}" for option, name in files.items() if name in os.environ),
        *options,
        str(REAL / "run_pytest.py"),
        # The JVM in the same process uses the signals that faulthandler would take.
        *("-p", "no:faulthandler", "-p", "no:cacheprovider", "-q", "-s"),
        *("-W", "ignore::UserWarning", f"--rootdir={ROOT}", f"--config-file={ROOT}/pyproject.toml"),
        *arguments,
    ]
    environment = {**os.environ, "PYTHONPATH": path, "ComputingUnits": "1"}
    log = folder / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            status = -1
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    said = [
        line
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines()
        if not line.startswith(("[(", "[BINDING"))
    ]
    assert status == 0, "\n".join(said[-150:])
    assert any(" passed" in line for line in said), "\n".join(said[-150:])


@pytest.mark.parametrize("checks", ["applications", "same_as_scikit_learn", "conformance"])
def test_on_a_real_runtime(checks: str, tmp_path: Path) -> None:
    run_inside(tmp_path, str(REAL / f"{checks}.py"))


def test_compare_on_a_real_runtime(tmp_path: Path) -> None:
    """The command starts nodes of its own on this machine."""
    words = ["compare", "histogram", "--backend", "compss", "--rows", "20000", "--rounds", "1"]
    words += ["--blocks-per-core", "4", "--workers", "2", "--output", str(tmp_path / "out")]
    path = os.pathsep.join(map(str, SOURCE_ROOTS))
    done = run_command(
        [sys.executable, "-m", "spliter_experiments", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, OPTIONS: JVM_OPTION},
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    tasks = {one.way: one.tasks for one in ResultsFolder(tmp_path / "out").records()}
    assert tasks["per-block"] == 8
    assert tasks["spliter"] == 3, "one for each node, and their sum"


def storage_jar(folder: Path) -> Path:
    """Compile the storage interface; skip where it cannot be."""
    interface = Path(os.environ["COMPSS_HOME"], "Runtime", "compss-engine.jar")
    tools = Path(os.environ.get("JAVA_HOME", ""), "bin")
    if not (tools / "javac").exists() or not interface.exists():
        pytest.skip(
            f"the storage interface cannot be compiled: it needs {tools / 'javac'} (JAVA_HOME) "
            f"and {interface}"
        )
    classes = folder / "classes"
    jar = folder / "spliter-storage.jar"
    compiled: list[str | Path] = [tools / "javac", "--release", "8", "-Xlint:-path,-options"]
    commands: list[list[str | Path]] = [
        [*compiled, "-cp", interface, "-d", classes, STORAGE],
        [tools / "jar", "cf", jar, "-C", classes, "."],
    ]
    for command in commands:
        done = run_command(command)
        assert done.returncode == 0, done.stderr
    return jar


def test_over_dataclay_on_a_real_runtime(tmp_path: Path) -> None:
    for module in ("dataclay", "dotenv"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"no storage interface here: the Python module {module} is not installed")
    nodes = sorted(nodes_by_software())
    if len(nodes) < 2:
        pytest.skip("COMPSS_RESOURCES names no file with two nodes that have software of their own")
    jar = storage_jar(tmp_path)
    from spliter_backends.dataclay.cluster import EmbeddedDataClay

    with EmbeddedDataClay(len(nodes), python_path=SOURCE_ROOTS) as dataclay:
        homes = zip(dataclay.backend_ids, nodes, strict=True)
        (service, port), (store, store_port) = dataclay.address, dataclay.store_address
        file = tmp_path / "storage.conf"
        file.write_text(
            f"DC_HOST={service}\nDC_PORT={port}\n"
            f"DATACLAY_KV_HOST={store}\nDATACLAY_KV_PORT={store_port}\n"
            f"SPLITER_COMPSS_WORKERS={','.join(f'{home}={node}' for home, node in homes)}\n"
        )
        options = [f"--storage_conf={file}", f"--classpath={jar}"]
        run_inside(tmp_path, str(REAL / "persistent.py"), options=options)
