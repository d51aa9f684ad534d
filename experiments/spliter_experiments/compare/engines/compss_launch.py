"""Run the command inside COMPSs, by starting ``runcompss`` with the command as the application.

``runcompss`` makes the COMPSs runtime a part of the program's process. Outside of it, a command
with ``--backend compss`` or ``compss+dataclay`` therefore starts ``runcompss`` and returns its exit
status.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import json
import os
import random
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from spliter_experiments.compare.engines.engine import (
    ClusterChoice,
    Engine,
    EngineKind,
    Launch,
    Placement,
)
from spliter_experiments.harness.errors import ClusterError, OptionError

LAUNCHED = "SPLITER_COMPSS_LAUNCHED"
"""Environment variable with the arguments and nodes of the command inside COMPSs."""

STARTING = "starting the nodes"
"""Activity reported until all nodes have started."""

START_SECONDS = 120
"""Maximum time until all nodes have run a task."""


@dataclass(frozen=True)
class Progress:
    """File with the deadline of an application's next report; None if no process watches it.

    >>> Progress(None).tell(60, "a way")
    """

    file: Path | None

    def tell(self, seconds: float, about: str) -> None:
        """Set the deadline of the next report."""
        if self.file is None:
            return
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps({"until": time.time() + seconds, "about": about}))
        new.replace(self.file)

    def overdue(self) -> str | None:
        """Return the current activity if its deadline has passed, else None."""
        if self.file is None:
            return None
        told = json.loads(self.file.read_text())
        return str(told["about"]) if time.time() > told["until"] else None


def launched_resources() -> Path | None:
    told = os.environ.get(LAUNCHED)
    return None if told is None else Path(json.loads(told)["resources"])


def launched_progress() -> Progress:
    told = os.environ.get(LAUNCHED)
    return Progress(None if told is None else Path(json.loads(told)["progress"]))


def launched_arguments() -> list[str]:
    return list(json.loads(os.environ[LAUNCHED])["arguments"])


ADAPTOR = "es.bsc.compss.nio.master.NIOAdaptor"

PORTS = 10
"""Number of consecutive ports reserved for a worker."""

PORT_RANGE = (15_000, 32_000)
"""Range of the ports tried."""

FIRST_HOST = 2
"""Nodes on this machine are 127.0.0.2 and so on: COMPSs identifies nodes by their names."""

MOST_HOSTS = 250


def units_in(file: Path) -> dict[str, int]:
    """Read the computing units (concurrent tasks) of each node from a resources file."""
    try:
        found = {
            str(node.get("Name")): sum(
                int(entry.text or 1) for entry in node.iter("ComputingUnits")
            )
            for node in ET.parse(file).getroot().iter("ComputeNode")
        }
    except (OSError, ET.ParseError, ValueError) as error:
        raise OptionError(f"cannot read the resources of COMPSs in {file}: {error}") from error
    if not found:
        raise OptionError(f"{file} names no nodes (<ComputeNode>)")
    return {name: max(units, 1) for name, units in found.items()}


def write_nodes(folder: Path, home: Path, starts: Sequence[int], threads: int) -> tuple[Path, Path]:
    """Write the project and the resources file for nodes on this machine, and return them.

    `folder` also gets the nodes' working directories. Each node starts at one of the ports `starts`
    and has `threads` computing units.
    """
    if len(starts) > MOST_HOSTS:
        raise OptionError(f"--workers: at most {MOST_HOSTS} COMPSs nodes on one machine")
    names = [f"127.0.0.{FIRST_HOST + number}" for number in range(len(starts))]
    project, resources = ET.Element("Project"), ET.Element("ResourcesList")
    ET.SubElement(project, "MasterNode")
    for name, port in zip(names, starts, strict=True):
        used = ET.SubElement(project, "ComputeNode", Name=name)
        ET.SubElement(used, "InstallDir").text = str(home)
        ET.SubElement(used, "WorkingDir").text = str(folder / f"node-{name}")
        node = ET.SubElement(resources, "ComputeNode", Name=name)
        processor = ET.SubElement(node, "Processor", Name="MainProcessor")
        ET.SubElement(processor, "ComputingUnits").text = str(threads)
        adaptor = ET.SubElement(ET.SubElement(node, "Adaptors"), "Adaptor", Name=ADAPTOR)
        ET.SubElement(ET.SubElement(adaptor, "SubmissionSystem"), "Interactive")
        ports = ET.SubElement(adaptor, "Ports")
        ET.SubElement(ports, "MinPort").text = str(port)
        ET.SubElement(ports, "MaxPort").text = str(port + PORTS - 1)
    return _written(project, folder / "project.xml"), _written(resources, folder / "resources.xml")


def _written(root: ET.Element, file: Path) -> Path:
    ET.indent(root)
    ET.ElementTree(root).write(file, encoding="utf-8", xml_declaration=True)
    return file


def free_ports(count: int) -> Sequence[int]:
    """Return first ports of `count` runs of `PORTS` free ports.

    They are below the ephemeral ports, because workers bind them only seconds later.
    """
    starts = range(*PORT_RANGE, PORTS)
    free = filter(_is_free, random.sample(starts, len(starts)))
    found = list(itertools.islice(free, count))
    if len(found) < count:
        raise ClusterError(f"there are no {PORTS} free ports in a row for each of {count} nodes")
    return found


def _is_free(first: int) -> bool:
    for port in range(first, first + PORTS):
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                return False
    return True


OPTIONS = "SPLITER_RUNCOMPSS"
"""Environment variable with further options for ``runcompss``."""

LIMIT_SECONDS = 2 * 60 * 60
"""Limit after which COMPSs ends the application."""

END_SECONDS = 60
"""Maximum wait for killed processes to end."""

POLL_SECONDS = 0.5

STARTS = 3
"""Number of attempts if nodes do not start, which happens on a busy machine."""

APPLICATION = """\
import sys

from spliter_experiments.__main__ import main
from spliter_experiments.compare.engines.compss_launch import launched_arguments

if __name__ == "__main__":
    sys.argv = ["spliter", *launched_arguments()]
    main()
"""


class NodesNotUpError(ClusterError):
    """A node ran no task in time; another attempt may succeed."""


def runs_inside() -> bool:
    if importlib.util.find_spec("pycompss") is None:
        return False
    from spliter_backends.compss.api import runtime_is_up

    return runtime_is_up()


def launcher() -> Launch | None:
    """Return the function that runs the command inside COMPSs; None if already inside."""
    return None if runs_inside() else launch


def launch(choice: ClusterChoice, arguments: Sequence[str]) -> int:
    """Run the command with these arguments inside COMPSs, and return its exit status.

    The address is a resources file, with ``project.xml`` next to it; without an address, nodes are
    started on this machine.
    """
    runcompss = shutil.which("runcompss")
    if runcompss is None:
        raise ClusterError(
            "this backend needs COMPSs: there is no runcompss on PATH; load your site's "
            "COMPSs module, or install COMPSs (spliter doctor says what is missing)"
        )
    for attempt in range(1, STARTS + 1):
        try:
            return _launch_once(choice, arguments, Path(runcompss))
        except NodesNotUpError as error:
            if attempt == STARTS:
                raise
            sys.stderr.write(f"{error}; it is started again\n")
    raise AssertionError("it has been started once at least")


def _launch_once(choice: ClusterChoice, arguments: Sequence[str], runcompss: Path) -> int:
    with TemporaryDirectory(prefix="spliter-compss-") as name:
        folder = Path(name)
        project, resources, here = _files(choice, folder, runcompss)
        application = folder / "spliter_command.py"
        application.write_text(APPLICATION, encoding="utf-8")
        progress = folder / "progress"
        told = {
            "arguments": list(arguments),
            "resources": str(resources),
            "progress": str(progress),
        }
        command = [
            *(str(runcompss), "--lang=python", f"--project={project}", f"--resources={resources}"),
            f"--python_interpreter={sys.executable}",
            f"--pythonpath={os.pathsep.join(path for path in sys.path if path)}",
            f"--log_dir={folder}",
            f"--wall_clock_limit={LIMIT_SECONDS}",
            *here,
            *shlex.split(os.environ.get(OPTIONS, "")),
            str(application),
        ]
        try:
            environment = {**os.environ, LAUNCHED: json.dumps(told)}
            return _run(command, environment, Progress(progress))
        finally:
            _kill_leftover_workers(folder)


def _files(
    choice: ClusterChoice, folder: Path, runcompss: Path
) -> tuple[Path, Path, tuple[str, ...]]:
    """Return the project file, the resources file, and options for nodes on this machine."""
    if choice.address is None:
        # runcompss is at <home>/Runtime/scripts/user
        home = Path(os.environ.get("COMPSS_HOME") or runcompss.resolve().parents[3])
        master, *starts = free_ports(1 + choice.workers)
        here = (
            "--master_name=localhost",
            # By default COMPSs draws an ephemeral port, which another connection may take.
            f"--master_port={master}",
            # Otherwise the workers of one machine are all pinned to its first core.
            "--cpu_affinity=disabled",
        )
        return *write_nodes(folder, home, starts, choice.threads), here
    resources = Path(choice.address).resolve()
    project = resources.with_name("project.xml")
    for file in resources, project:
        if not file.is_file():
            raise OptionError(
                f"--address: there is no {file}; for COMPSs it is the resources file, with "
                "project.xml beside it"
            )
    return project, resources, ()


def _run(command: Sequence[str], environment: dict[str, str], progress: Progress) -> int:
    """Run a command in its own session, so that all of its processes can be ended."""
    progress.tell(START_SECONDS, STARTING)
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    # Ending this process must end the application too.
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        return _wait_while_on_time(process, progress)
    finally:
        signal.signal(signal.SIGTERM, before)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait_while_on_time(process: subprocess.Popen[bytes], progress: Progress) -> int:
    """Wait for the application while it reports progress in time."""
    while True:
        try:
            return process.wait(POLL_SECONDS)
        except subprocess.TimeoutExpired:
            about = progress.overdue()
        if about is not None:
            kind = NodesNotUpError if about == STARTING else ClusterError
            raise kind(
                f"the COMPSs application has not come to an end with {about} in time; its logs may "
                "say why (a node that did not start, a task whose input was lost)"
            )


def _kill_leftover_workers(folder: Path) -> None:
    """Kill leftover workers of an application: their arguments contain its folder."""
    left = [
        process
        for process in psutil.process_iter(["cmdline"])
        if any(str(folder) in word for word in process.info["cmdline"] or ())
    ]
    for process in left:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(left, timeout=END_SECONDS)


def connect_inside(module: str) -> Callable[[ClusterChoice], AbstractContextManager[Engine]]:
    """Return the function that connects to the COMPSs application of this process.

    `module` has a function ``connect``, and imports PyCOMPSs.
    """

    @contextmanager
    def connect(choice: ClusterChoice) -> Iterator[Engine]:
        try:
            engine = importlib.import_module(module)
        except ImportError as error:
            raise ClusterError(f"COMPSs cannot be used here: {error}") from error
        with engine.connect(choice) as connected:
            yield connected

    return connect


ENGINE = EngineKind(
    name="compss",
    placements=frozenset({Placement.EVEN, Placement.COMPSS}),
    connect=connect_inside("spliter_experiments.compare.engines.compss_engine"),
    launcher=launcher,
    node_is_worker=True,
)

WITH_DATACLAY = replace(
    ENGINE,
    name="compss+dataclay",
    placements=frozenset({Placement.EVEN, Placement.CONTIGUOUS}),
    connect=connect_inside("spliter_experiments.compare.engines.compss_dataclay_engine"),
)
