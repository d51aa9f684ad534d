"""Read and write the files that define the nodes of COMPSs.

``resources.xml`` describes the nodes, ``project.xml`` selects nodes and their settings.
"""

from __future__ import annotations

import itertools
import random
import socket
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

from spliter_experiments.harness.errors import ClusterError, OptionError

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
