"""What the resources file says about the nodes of the application."""

from __future__ import annotations

import os
import xml.etree.ElementTree as ET


def nodes_by_software() -> dict[str, str]:
    """Return for each node a software that it alone has, from the file in COMPSS_RESOURCES."""
    path = os.environ.get("COMPSS_RESOURCES")
    if not path:
        return {}
    found = {
        str(node.get("Name")): [str(entry.text) for entry in node.iter("Application")]
        for node in ET.parse(path).getroot().iter("ComputeNode")
    }
    every = [software for has in found.values() for software in has]
    return {
        name: next(software for software in has if every.count(software) == 1)
        for name, has in found.items()
        if any(every.count(software) == 1 for software in has)
    }
