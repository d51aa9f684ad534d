"""Settings of the COMPSs backend."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from spliter import InvalidArgumentError
from spliter.backend import check_count

Locate = Literal["tasks", "round-robin"]


@dataclass(frozen=True)
class CompssSettings:
    """How blocks are located and tasks placed.

    Parameters
    ----------
    locate : {"tasks", "round-robin"}
        For blocks of unknown location: run a tiny task on each, which COMPSs usually runs where
        the block is; or assume that they are on the nodes in turn.
    nodes : tuple of str
        Nodes for ``"round-robin"``; by default those that tasks have reported.
    pins : mapping of str to str
        For each node the software (``app_software``) that it alone has in the resources file.
        Tasks of partitions on these nodes are pinned to them. COMPSs' scheduler places all others,
        usually where their data is.
    computing_units : int or None
        Number of concurrent tasks of a node; by default the cores that it reports.
    """

    locate: Locate = "tasks"
    nodes: tuple[str, ...] = ()
    pins: Mapping[str, str] = field(default_factory=dict)
    computing_units: int | None = None

    def __post_init__(self) -> None:
        if self.locate not in ("tasks", "round-robin"):
            raise InvalidArgumentError(
                f"locate must be 'tasks' or 'round-robin', got {self.locate!r}"
            )
        if self.computing_units is not None:
            check_count("computing_units", self.computing_units, instead="None or ")


_current = [CompssSettings()]


def settings() -> CompssSettings:
    """Return the current settings."""
    return _current[0]


def configure(**changes: Any) -> CompssSettings:
    """Change settings of this process, for Splits created afterwards.

    Parameters
    ----------
    **changes
        Any of the parameters of :class:`CompssSettings`.

    Returns
    -------
    CompssSettings
        The previous settings.

    Raises
    ------
    InvalidArgumentError
        If a value is invalid, or there is no such setting.

    Examples
    --------
    >>> before = configure(locate="round-robin", nodes=("node1", "node2"))
    >>> settings().nodes
    ('node1', 'node2')
    >>> _ = configure(locate=before.locate, nodes=before.nodes)
    """
    before = settings()
    known = {entry.name for entry in dataclasses.fields(CompssSettings)}
    if unknown := changes.keys() - known:
        raise InvalidArgumentError(
            f"unknown settings {sorted(unknown)}; choose from {sorted(known)}"
        )
    _current[0] = dataclasses.replace(before, **changes)
    return before
