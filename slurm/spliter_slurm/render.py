"""Render jobs as batch scripts, from the folder ``templates`` next to this module."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from spliter_experiments.evaluation import command_of
from spliter_experiments.evaluation.tables import clock
from spliter_experiments.harness.errors import ProfileError
from spliter_slurm.jobs import START_SECONDS, Job, Stand
from spliter_slurm.site import Site

WARNING_SECONDS = 60
"""SLURM signals a job this long before its time limit, so that it can stop its services."""

RESULTS = "results"
"""Folder in a submission for the records of all jobs."""

WORKER_SHARE = 0.95
"""Memory limit of a Dask worker as a share of its part of the node's memory."""

STORE_SHARE = 0.5
"""Object store of a Ray node as a share of the node's memory; Ray's default is 0.3, and its workers
need memory for what they compute. Ray spills what does not fit."""

ENQUEUED = ("compss", "compss+dataclay")
"""Engines whose jobs ``enqueue_compss`` submits."""

ADDRESSES = {
    "dask": '--address "$scheduler_file"',
    "dataclay": '--address "$(< "$metadata_file")"',
    "ray": '--address "$ray_address"',
}
"""Engines whose services a job starts: the option that leads to them, in the words of a shell."""


@dataclass(frozen=True)
class Script:
    """A rendered job: contents by file name, the script itself first."""

    job: Job
    files: Mapping[str, str]

    @property
    def name(self) -> str:
        """File name of the script."""
        return next(iter(self.files))

    @property
    def text(self) -> str:
        """Content of the script."""
        return self.files[self.name]


def interface_of(site: Site, network: str | None) -> str:
    """Return the interface of a network at a site, or of the site's default network.

    A network that the site does not name is an interface itself.

    Examples
    --------
    >>> from spliter_slurm.site import load_site
    >>> interface_of(load_site("marenostrum4"), None), interface_of(load_site("local"), "eth0")
    ('ib0', 'eth0')
    """
    wanted = site.network if network is None else network
    if wanted in ("fabric", "ethernet") and wanted not in site.interfaces:
        there = ", ".join(site.interfaces) or "none"
        raise ProfileError(
            f"--network {wanted}: the profile {site.name} does not say which interface that is "
            f"(its networks: {there}); write it under [interfaces], or name the interface itself"
        )
    return next((there for name, there in site.interfaces.items() if name == wanted), wanted)


def render(job: Job, site: Site, interface: str, folder: Path) -> Script:
    """Render a job as a batch script or, for COMPSs, as a script that calls ``enqueue_compss``.

    `folder` is the absolute path of the submission, the same on all nodes. Services listen on the
    `interface` or, without one, at the address of the host's name.
    """
    lacking = [name for name in site.required if not getattr(site, name)]
    if lacking:
        options = " and ".join(f"--{name}" for name in lacking)
        raise ProfileError(f"{site.name} takes no job without {options}")
    make = _compss if job.shape.engine in ENQUEUED else _batch
    return Script(job, make(job, site, interface, folder))


def render_submit(scripts: Sequence[Script], folder: Path, command: str) -> str:
    """Render the shell script that submits jobs; `command` made them."""
    context = {
        "scripts": scripts,
        "folder": str(folder),
        "command": command,
        "enqueued": ENQUEUED,
    }
    return environment().get_template("submit.sh.j2").render(context)


def _batch(job: Job, site: Site, interface: str, folder: Path) -> dict[str, str]:
    context = {
        **_common(job, site, folder),
        **batch_context(site, interface),
        "batch_options": batch_options(
            job,
            site,
            chdir=str(folder),
            # sbatch expands characters after a percent sign.
            output=f"{str(folder).replace('%', '%%')}/logs/{job.name}-%j.out",
        ),
        "worker_memory": int(WORKER_SHARE * site.memory_bytes / job.shape.per_node),
        "store_memory": int(STORE_SHARE * site.memory_bytes),
    }
    return {f"{job.name}.sbatch": environment().get_template("job.sbatch.j2").render(context)}


def batch_context(site: Site, interface: str) -> dict[str, Any]:
    """Return what the templates of all batch scripts need."""
    return {
        "site": site,
        "modules": site.modules,
        "interface": f" --interface {shlex.quote(interface)}" if interface else "",
        "start_seconds": START_SECONDS,
        "warning_seconds": WARNING_SECONDS,
    }


def _compss(job: Job, site: Site, interface: str, folder: Path) -> dict[str, str]:
    runs_file, properties_file = f"{job.name}.json", f"{job.name}.properties"
    over_dataclay = job.shape.engine == "compss+dataclay"
    if over_dataclay and not site.storage_jar:
        raise ProfileError(
            f"{site.name} has no storage_jar, by which COMPSs asks dataClay for locations; compile "
            "backends/spliter_backends/compss/storage (its README says how), and give its path as "
            "--storage-jar"
        )
    named = {
        "--project_name": site.account,
        "--qos": site.qos,
        "--queue": site.partition,
        "--constraints": site.constraint,
    }
    context = _common(job, site, folder)
    context |= {
        "job": {**context["job"], "runs_file": str(folder / "scripts" / runs_file)},
        "modules": (*site.modules, *site.compss_modules),
        "minutes": math.ceil(job.seconds / 60),
        "properties": str(folder / "scripts" / properties_file) if over_dataclay else "",
        "compss_options": [
            *(f"{option}={value}" for option, value in named.items() if value),
            *_compss_network(site, interface),
            *site.compss_options,
        ],
    }
    stands = [
        {"name": stand.name, "words": command_of(stand.runs, folder / RESULTS)[1:]}
        for stand in job.stands
    ]
    templates = environment()
    script = templates.get_template("compss.sh.j2").render(context)
    files = {f"{job.name}.sh": script, runs_file: json.dumps(stands, indent=1) + "\n"}
    if over_dataclay:
        properties = templates.get_template("storage.properties.j2")
        files[properties_file] = properties.render(context | batch_context(site, interface))
    return files


def _compss_network(site: Site, interface: str) -> list[str]:
    """Return COMPSs's option for the network, which names kinds of network, not interfaces."""
    kinds = {known: kind for kind, known in site.interfaces.items()}
    kind = kinds.get(interface)
    return [] if kind is None else [f"--network={'infiniband' if kind == 'fabric' else kind}"]


def _common(job: Job, site: Site, folder: Path) -> dict[str, Any]:
    shape = job.shape
    return {
        "site": site,
        "job": {
            "name": job.name,
            "what": f"{len(job.runs)} runs on {shape.engine}; {shape.nodes} nodes, "
            f"workers on each: {shape.per_node}, threads of each: {shape.threads}",
            "shape": shape,
            "folder": str(folder / "jobs" / job.name),
            "has_services": shape.engine in ADDRESSES,
            "by_mpi": site.launcher == "mpi" and shape.engine == "dask",
            "stands": [
                {
                    "name": stand.name,
                    "limit": min(stand.limit, job.seconds),
                    "words": _words(job, stand, folder),
                }
                for stand in job.stands
            ],
        },
    }


def _words(job: Job, stand: Stand, folder: Path) -> list[str]:
    """Return the words of a command, quoted for the shell, with variables set by the job."""
    # Run in the job's interpreter, not the first one on the PATH.
    command = ['"$python"', "-m", "spliter_experiments"]
    command += [shlex.quote(word) for word in command_of(stand.runs, folder / RESULTS)[1:]]
    address = ADDRESSES.get(job.shape.engine)
    return command if address is None else [*command, address]


def batch_options(job: Job, site: Site, **further: str) -> list[str]:
    """Return the options of ``sbatch`` as written in the script."""
    shape = job.shape
    named = {
        "job-name": job.name,
        "nodes": str(shape.nodes),
        "ntasks-per-node": str(shape.per_node),
        "cpus-per-task": str(shape.threads),
        "time": clock(job.seconds),
        "partition": site.partition,
        "account": site.account,
        "qos": site.qos,
        "constraint": site.constraint,
        **further,
        "signal": f"B:TERM@{WARNING_SECONDS}",
    }
    # A job requeued by SLURM would find the files of its first execution.
    flags = ["--no-requeue", *(["--exclusive"] if site.exclusive else [])]
    options = [f"--{name}={_directive(value)}" for name, value in named.items() if value]
    return [_one_line(option) for option in (*options, *flags, *site.batch_options)]


def _directive(value: str) -> str:
    """Quote a value for an #SBATCH line, where spaces end it."""
    if any(character in value for character in "\"'\\"):
        raise ProfileError(
            f"sbatch would misread {value!r}: no quotes and no backslash in names and paths"
        )
    return f'"{value}"' if " " in value else value


def _one_line(option: str) -> str:
    """Check that an option is one line: the shell would execute what follows a line break."""
    if not option.isprintable():
        raise ProfileError(
            f"an option of sbatch is one line without control characters: {option!r}"
        )
    return option


def _comment(text: str) -> str:
    """Return text as one line, so that it stays in a shell comment."""
    return " ".join(text.split())


def environment() -> jinja2.Environment:
    """Return the templates."""
    found = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    found.filters["quoted"] = shlex.quote
    found.filters["comment"] = _comment
    return found
