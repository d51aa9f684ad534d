"""A real SLURM for a test: controller and several virtual nodes on this machine.

No systemd and nothing in ``/etc``: all files are in one folder, all daemons are children of this
process, and their ports are free ones of the system's choice. The nodes share this machine's cores
and the loopback interface, so it is good for logic and not for figures.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

from tests.running import run_command

LOGIN = "login"
"""Where the controller is, and commands are given."""

DAEMONS = ("munged", "slurmctld", "slurmd", "sbatch")
UP_SECONDS = 60
STOP_SECONDS = 15
TRIES = 3

CONF = """
ClusterName=virtual
{controller}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
MpiDefault=none
ReturnToService=2
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
TmpFS={folder}/tmp/%n
SlurmctldLogFile={folder}/log/slurmctld
SlurmdLogFile={folder}/log/slurmd.%n
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SchedulerType=sched/backfill
SchedulerParameters=sched_min_interval=0,sched_interval=1,bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
KillWait=5
MessageTimeout=5
MinJobAge=3600
MailProg=/bin/true
{nodes}
PartitionName=main Nodes=node[1-{count}] Default=YES MaxTime=60 State=UP
"""
NODE = (
    "NodeName={name} {where} CPUs={cores} Sockets=1 CoresPerSocket={cores} ThreadsPerCore=1 "
    "RealMemory=4096 State=UNKNOWN"
)


def why_not() -> str:
    """Say why no SLURM can be started here; empty if one can."""
    missing = [name for name in DAEMONS if shutil.which(name, path=_path()) is None]
    if missing:
        return f"{', '.join(missing)} not installed (Debian packages slurm-wlm and munge)"
    return ""


def _path() -> str:
    # Debian's daemons are where only root's PATH leads.
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


class VirtualSlurm:
    """A running cluster.

    Parameters
    ----------
    folder : Path
        Of its files.
    nodes, cores : int
        Virtual nodes, and cores that each is said to have.
    """

    def __init__(self, folder: Path, nodes: int, cores: int) -> None:
        self.folder = folder
        self.nodes = nodes
        self.cores = cores
        self.environment = {
            **os.environ,
            "PATH": _path(),
            "SLURM_CONF": str(folder / "slurm.conf"),
        }
        self._daemons: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start all daemons and wait until all nodes are idle."""
        self._make_folders()
        munge = self.folder / "munge"
        self._daemon(
            *("munged", "--foreground", f"--key-file={munge}/key", f"--socket={munge}/socket"),
            *(f"--pid-file={munge}/pid", f"--log-file={munge}/log", f"--seed-file={munge}/seed"),
        )
        self._until((munge / "socket").exists, "munged")
        self._daemon("slurmctld", "-D")
        for name in self.names:
            self._daemon("slurmd", "-D", "-N", name, at=name)
        self._until(self._is_idle, "nodes")

    @property
    def names(self) -> list[str]:
        """Names of the nodes."""
        return [f"node{number}" for number in range(1, self.nodes + 1)]

    def inside(self, host: str, command: Sequence[str]) -> list[str]:
        """Return the command that runs a command at a host."""
        return list(command)

    def addresses(self) -> tuple[str, list[str]]:
        """Return what SLURM is told of where the controller and each node are."""
        controller, *ports = free_ports(1 + self.nodes)
        here = socket.gethostname().partition(".")[0]
        return (
            f"SlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort={controller}",
            [f"NodeHostname={here} NodeAddr=127.0.0.1 Port={port}" for port in ports],
        )

    def call(self, *command: str, seconds: float = 30) -> str:
        """Run a command on the login node and return what it prints."""
        done = run_command(
            self.inside(LOGIN, command), env=self.environment, timeout=seconds, check=True
        )
        return done.stdout

    def stop(self) -> None:
        """End all jobs and daemons."""
        with contextlib.suppress(subprocess.SubprocessError, OSError):
            self.call("scancel", f"--user={getpass.getuser()}")
            deadline = time.monotonic() + STOP_SECONDS
            while self.call("squeue", "--noheader") and time.monotonic() < deadline:
                time.sleep(0.1)
        for daemon in reversed(self._daemons):
            daemon.terminate()
        for daemon in reversed(self._daemons):
            try:
                daemon.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait(STOP_SECONDS)
        # Steps of jobs are no children of the daemons' any more.
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                process.kill()

    def processes(self) -> list[psutil.Process]:
        """Return all processes that belong to this cluster and its jobs."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                conf = process.environ().get("SLURM_CONF")
                if conf == self.environment["SLURM_CONF"] and process.pid != os.getpid():
                    found.append(process)
        return found

    def leftovers(self) -> list[str]:
        """Return the command lines of what jobs have left running."""
        daemons = {daemon.pid for daemon in self._daemons}
        found = []
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                if process.pid not in daemons and process.name() != "slurmstepd":
                    found.append(" ".join(process.cmdline()))
        return found

    def _make_folders(self) -> None:
        for name in ("munge", "state", "log"):
            (self.folder / name).mkdir()
        for name in self.names:
            (self.folder / "tmp" / name).mkdir(parents=True)
            (self.folder / "spool" / name).mkdir(parents=True)
        # munged insists that others may pass through to its socket.
        self.folder.chmod(0o755)
        (self.folder / "munge").chmod(0o755)
        key = self.folder / "munge" / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        # Lets slurmd start where there are no control groups, as in containers.
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        controller, where = self.addresses()
        conf = CONF.format(
            controller=controller,
            user=getpass.getuser(),
            folder=self.folder,
            nodes="\n".join(
                NODE.format(name=name, where=there, cores=self.cores)
                for name, there in zip(self.names, where, strict=True)
            ),
            count=self.nodes,
        )
        (self.folder / "slurm.conf").write_text(conf)

    def _daemon(self, *command: str, at: str = LOGIN) -> None:
        log = self.folder / "log" / f"{len(self._daemons)}-{command[0]}"
        with log.open("wb") as stream:
            daemon = subprocess.Popen(
                self.inside(at, command),
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
            )
        self._daemons.append(daemon)

    def _is_idle(self) -> bool:
        try:
            idle = self.call("sinfo", "--noheader", "--states=idle", "--format=%D")
        except subprocess.SubprocessError:
            return False
        return idle.strip() == str(self.nodes)

    def _until(self, is_so: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + UP_SECONDS
        while not is_so():
            ended = [daemon.args for daemon in self._daemons if daemon.poll() is not None]
            if ended or time.monotonic() > deadline:
                logs = "\n".join(
                    f"{file.name}: {file.read_text(errors='replace')[-1000:]}"
                    for file in sorted((self.folder / "log").iterdir())
                )
                raise SlurmNotUpError(f"{what} not up; ended: {ended}\n{logs}")
            time.sleep(0.1)


class SlurmNotUpError(RuntimeError):
    """A daemon did not come up."""


def free_ports(count: int) -> list[int]:
    """Return ports that are free now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@contextmanager
def virtual_slurm(
    nodes: int = 4, cores: int = 2, make: Callable[..., VirtualSlurm] = VirtualSlurm
) -> Iterator[VirtualSlurm]:
    """Start a cluster for the time of a context; another one if somebody took a port meanwhile."""
    for left in reversed(range(TRIES)):
        # Not pytest's folder: the path of a socket has 107 characters at most.
        folder = Path(tempfile.mkdtemp(prefix="spliter-slurm-"))
        cluster = make(folder, nodes, cores)
        try:
            cluster.start()
        except SlurmNotUpError:
            cluster.stop()
            if not left:
                raise
            continue
        try:
            yield cluster
        finally:
            cluster.stop()
            shutil.rmtree(folder, ignore_errors=True)
        return
