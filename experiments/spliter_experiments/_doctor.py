"""``spliter doctor``: what can be used here, and why the rest cannot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

import spliter
from spliter import BackendInfo
from spliter_experiments._errors import ClusterError, OptionError
from spliter_experiments._facts import Facts
from spliter_experiments._requirements import Requirement
from spliter_experiments._table import size

YES = Text("yes", style="green")
NO = Text("no", style="red")


def backend_table(infos: Sequence[BackendInfo]) -> Table:
    """Return a table of the backends, with the reason where one is not usable."""
    table = Table(title="Backends", title_justify="left")
    table.add_column("name", no_wrap=True)
    table.add_column("usable")
    table.add_column("engine version")
    table.add_column("why not, and what to do")
    for info in infos:
        # Text, not str: `spliter[dask]` would be read as markup.
        table.add_row(
            info.name, YES if info.usable else NO, info.version or "-", Text(_advice(info))
        )
    return table


def _advice(info: BackendInfo) -> str:
    if info.usable:
        return ""
    install = f'pip install "spliter[{info.extra}]"' if info.extra else ""
    missing = install if install not in info.reason else ""
    return "; ".join(filter(None, [info.reason, missing]))


def requirement_table(requirements: Sequence[Requirement]) -> Table:
    """Return a table of what backends need beside packages, and what to do where it is missing."""
    table = Table(title="What dataClay and COMPSs need", title_justify="left")
    table.add_column("for", no_wrap=True)
    table.add_column("what", no_wrap=True)
    table.add_column("there")
    table.add_column("where, or what to do")
    for need in requirements:
        table.add_row(
            need.backend, need.what, YES if need.found else NO, Text(need.found or need.advice)
        )
    return table


def machine_table(found: Facts) -> Table:
    """Return a table of versions and the machine."""
    table = Table(title="This machine", title_justify="left", show_header=False)
    table.add_column("what", no_wrap=True)
    table.add_column("value")
    table.add_row("system", found.system)
    table.add_row("processor", found.processor)
    table.add_row("cores", str(found.cores))
    table.add_row("memory", size(found.memory))
    for name, version in found.versions.items():
        table.add_row(name, version)
    return table


def worker_table(scheduler: str, versions: Mapping[str, str | None]) -> Table:
    """Return a table of the workers of a cluster and whether SplIter is the same there."""
    table = Table(title=f"Workers of {scheduler}", title_justify="left")
    table.add_column("worker")
    table.add_column("spliter")
    table.add_column("same as here")
    for worker, version in sorted(versions.items()):
        table.add_row(worker, version or "-", YES if version == spliter.__version__ else NO)
    return table


def check_required(names: Sequence[str], infos: Sequence[BackendInfo]) -> None:
    """Make sure that backends can be used.

    Raises
    ------
    OptionError
        If there is no backend of a name.
    ClusterError
        If one is not usable.
    """
    by_name = {info.name: info for info in infos}
    for name in names:
        if name not in by_name:
            raise OptionError(f"there is no backend {name!r}; there are {', '.join(by_name)}")
        if not by_name[name].usable:
            raise ClusterError(f"backend {name!r} is required: {_advice(by_name[name])}")
