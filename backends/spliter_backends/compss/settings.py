"""Settings of the COMPSs backend."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from spliter import InvalidArgumentError

Locate = Literal["tasks", "round-robin"]


@dataclass(frozen=True)
class CompssSettings:
    """How blocks are located and tasks placed.

    Parameters
    ----------
    locate : {"tasks", "round-robin"}
        What to do about blocks whose location is not known: run a tiny task on each, which
        COMPSs places where the block is, as a rule; or take them to be on the nodes in turn.
    nodes : tuple of str
        Nodes for ``"round-robin"``; by default those heard of from tasks.
    pins : mapping of str to str
        For each node the software (``app_software``) that it alone has by the resources file.
        Tasks of partitions on these nodes are pinned to them. Others go where COMPSs' scheduler
        puts them, which follows the data as a rule.
    computing_units : int or None
        Tasks that a node runs at once; by default the cores that it reports.
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
        if self.computing_units is not None and self.computing_units < 1:
            raise InvalidArgumentError(
                f"computing_units must be None or an int >= 1, got {self.computing_units!r}"
            )


_current = [CompssSettings()]


def settings() -> CompssSettings:
    """Return the settings in force.

    Returns
    -------
    CompssSettings
    """
    return _current[0]


def configure(**changes: Any) -> CompssSettings:
    """Change settings of this process, for Splits made from now on.

    Parameters
    ----------
    **changes
        Any of the parameters of :class:`CompssSettings`.

    Returns
    -------
    CompssSettings
        The settings that were in force before.

    Raises
    ------
    InvalidArgumentError
        If a value cannot be used, or there is no such setting.

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
        raise InvalidArgumentError(f"no settings {sorted(unknown)}; there are {sorted(known)}")
    _current[0] = dataclasses.replace(before, **changes)
    return before
