"""TCP connections of processes of this machine, as the operating system lists them."""

from __future__ import annotations

from typing import Any

import psutil

HELD = {psutil.CONN_ESTABLISHED, psutil.CONN_CLOSE_WAIT}
"""States of connections that the server has not closed."""


def connections_from(process: int, ports: set[int]) -> set[tuple[int, int]]:
    """Return the connections of a process to some ports: its own port, and the one it reaches."""
    found: list[Any] = psutil.Process(process).net_connections("tcp")
    return {(at.laddr.port, at.raddr.port) for at in found if at.raddr and at.raddr.port in ports}


def clients_of(ports: set[int]) -> set[tuple[int, int]]:
    """Return the connections that servers at some ports have, seen from the other side."""
    found: list[Any] = [one for one in psutil.net_connections("tcp") if one.status in HELD]
    return {(at.raddr.port, at.laddr.port) for at in found if at.laddr.port in ports}
