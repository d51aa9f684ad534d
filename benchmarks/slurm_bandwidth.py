"""SplIter, rechunking and one task per block on a network that is as slow as a real one.

    sudo .venv/bin/python -m benchmarks.slurm_bandwidth --rate 1gbit --repetitions 7

Starts a SLURM cluster of four nodes, each in its own network namespace of the kernel (which needs
root), with links limited to the given rate, and runs one experiment there by ``spliter slurm``, as
on a real cluster. Transfers between workers then take as long as on such a network, although all
nodes share the cores of this machine. With ``--rate none`` the links are as fast as memory; the
difference is the cost of the network.

Needs the Debian packages slurm-wlm, munge and iproute2.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from spliter_experiments.harness.records import Record, ResultsFolder
from spliter_experiments.harness.summary import summarise
from spliter_experiments.harness.table import summary_grid
from tests.conftest import SOURCE_ROOTS
from tests.slurm.cluster import LOGIN, VirtualSlurm, virtual_slurm

JOB_SECONDS = 1200

CONFIGURATIONS = ("baseline", "rechunk", "spliter")

SCENARIO = """
schema_version = 1
figure = "9"
title = "Histogram over links of limited bandwidth"
kind = "fragmentation-sweep"
configurations = ["baseline", "rechunk", "spliter"]

[parameters]
app = "histogram"
dims = 5
bins = 4

[sizes.laptop]
nodes = [4]
workers_per_node = 1
threads_per_worker = 1
blocks_per_core = [48]
rows_per_node = {rows}
repetitions = {repetitions}
seconds_per_run = 5

[paper]
reading = "none"
source = "none"
"""


class NamespaceSlurm(VirtualSlurm):
    """A virtual cluster whose nodes have their own networks, with links of limited bandwidth.

    The rate is that of each link in each direction, in the notation of ``tc``, or ``"none"``.
    """

    def __init__(self, folder: Path, nodes: int, cores: int, *, rate: str) -> None:
        super().__init__(folder, nodes, cores)
        self._rate = rate
        self._hosts = {LOGIN: "10.77.0.254"} | {
            name: f"10.77.0.{number}" for number, name in enumerate(self.names, start=1)
        }

    def start(self) -> None:
        lines = [f"{address} {host}" for host, address in self._hosts.items()]
        (self.folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *lines]) + "\n")
        for host in self._hosts:
            _ip("netns", "add", self._namespace(host))
            _ip("-n", self._namespace(host), "link", "set", "lo", "up")
        hub = self._namespace(LOGIN)
        _ip("-n", hub, "link", "add", "hub", "type", "bridge")
        _ip("-n", hub, "addr", "add", f"{self._hosts[LOGIN]}/24", "dev", "hub")
        _ip("-n", hub, "link", "set", "hub", "up")
        for name in self.names:
            self._plug_in(name, hub)
        super().start()

    def _plug_in(self, name: str, hub: str) -> None:
        own = self._namespace(name)
        peer = ("peer", "name", "eth0", "netns", own)
        _ip("-n", hub, "link", "add", name, "type", "veth", *peer)
        _ip("-n", hub, "link", "set", name, "master", "hub", "up")
        _ip("-n", own, "addr", "add", f"{self._hosts[name]}/24", "dev", "eth0")
        _ip("-n", own, "link", "set", "eth0", "up")
        if self._rate != "none":
            shape = ("root", "tbf", "rate", self._rate, "burst", "256kb", "latency", "50ms")
            for namespace, device in ((own, "eth0"), (hub, name)):
                _run("tc", "-n", namespace, "qdisc", "add", "dev", device, *shape)

    def stop(self) -> None:
        super().stop()
        for host in self._hosts:
            subprocess.run(
                ["ip", "netns", "del", self._namespace(host)], capture_output=True, check=False
            )

    def inside(self, host: str, command: Sequence[str]) -> list[str]:
        """Return the command that runs a command at a host, under its host name."""
        # `ip netns exec` would mount /sys again, without the control groups that slurmd needs.
        enter = ["nsenter", f"--net=/run/netns/{self._namespace(host)}", "unshare"]
        name = 'mount --bind "$1" /etc/hosts && hostname "$2" && shift 2 && exec "$@"'
        rename = ["--uts", "--mount", "bash", "-c", name, "at"]
        return [*enter, *rename, str(self.folder / "hosts"), host, *command]

    def addresses(self) -> tuple[str, list[str]]:
        """Return SLURM's options for the addresses of the controller and the nodes."""
        return (
            f"SlurmctldHost={LOGIN}({self._hosts[LOGIN]})",
            [f"NodeAddr={self._hosts[name]}" for name in self.names],
        )

    def _namespace(self, host: str) -> str:
        return f"spliter-{os.getpid()}-{host}"


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, timeout=30)


def measure(rate: str, rows: int, repetitions: int) -> list[Record]:
    """Run the experiment on a new cluster with `rows` points on each node; return its records."""
    with (
        tempfile.TemporaryDirectory(prefix="spliter-bandwidth-") as name,
        virtual_slurm(nodes=4, cores=2, make=partial(NamespaceSlurm, rate=rate)) as cluster,
    ):
        folder = Path(name)
        scenario = folder / "scenario.toml"
        scenario.write_text(SCENARIO.format(rows=rows, repetitions=repetitions))
        cluster.environment["PYTHONPATH"] = os.pathsep.join(map(str, SOURCE_ROOTS))
        sweep = folder / "sweep"
        spliter = [sys.executable, "-m", "spliter_experiments", "slurm"]
        site = ["--site", "local", "--network", "eth0", "--python", sys.executable]
        what = [str(scenario), *site, "--size", "laptop", "--output", str(sweep)]
        cluster.call(*spliter, *what, seconds=60)
        cluster.call("bash", str(sweep / "submit.sh"), seconds=60)
        deadline = time.monotonic() + JOB_SECONDS
        while cluster.call("squeue", "--noheader"):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the job has not ended after {JOB_SECONDS} s")
            time.sleep(0.5)
        for log in (sweep / "logs").iterdir():
            sys.stderr.write(log.read_text(errors="replace"))
        return ResultsFolder(sweep / "results").records()


def report(rate: str, records: Sequence[Record]) -> None:
    summaries = summarise(records, CONFIGURATIONS)
    print(f"links: {rate}")
    print("\n".join(summary_grid(summaries, "blocks per core").markdown()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rate", nargs="+", default=["none", "1gbit"])
    parser.add_argument("--rows", type=int, default=1_250_000, help="points on each node")
    parser.add_argument("--repetitions", type=int, default=7)
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("namespaces take root")
    for rate in options.rate:
        report(rate, measure(rate, options.rows, options.repetitions))
    return 0


if __name__ == "__main__":
    sys.exit(main())
