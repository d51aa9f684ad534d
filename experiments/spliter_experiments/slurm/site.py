"""Site profiles: resources, required options and network names of a cluster.

A profile is a TOML file. The folder ``sites`` next to this module has those of the package; users
can give a file of their own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_validator,
)

from spliter_experiments.harness.toml_files import mistakes, parse_toml
from spliter_experiments.slurm.errors import ProfileError

SITES = Path(__file__).parent / "sites"
"""Folder of the profiles in the package."""

GIB = 2**30

SCRATCH = r"^(?:[^\x00-\x1f\"`\\$]|\$[A-Za-z_{])+$"
"""Pattern of a path inside double quotes of the shell: variables, but no commands or quotes."""


class Site(BaseModel):
    """Profile of one cluster. Sizes are per node.

    Parameters
    ----------
    name : str
        Stem of the profile's file name.
    description : str
        Text for users.
    nodes : int
        Maximum number of nodes of a job.
    sockets, cores_per_socket : int
        Processors, and cores of each.
    memory_gib : float
        Memory that the programs of a job may use in total.
    hours : float
        Maximum time limit of a job.
    partition, account, qos, constraint : str
        Values of these options of ``sbatch``; empty to omit the option.
    exclusive : bool
        Whether a job has its nodes to itself.
    required : tuple of str
        Which of partition, account and qos the user must give.
    interfaces : mapping of str to str
        Network interfaces: ``fabric`` (Omni-Path, InfiniBand) and ``ethernet``. Without one,
        services use the address of the host's name.
    network : str
        Default network; empty for none.
    batch_options : tuple of str
        Further options of ``sbatch``, such as ``--switches=1``.
    step_options : tuple of str
        Options of every ``srun``. Since SLURM 20.11 steps need ``--overlap`` to share cores.
    worker_options : tuple of str
        Options of the ``srun`` that starts workers: binding to cores.
    modules : tuple of str
        Modules to load, after unloading those of the login shell.
    venv : str
        Virtual environment to activate; empty for none.
    python : str
        Python interpreter.
    environment : mapping of str to str
        Environment variables to export.
    prolog, epilog : tuple of str
        Shell lines to run before the services start and after they have ended.
    scratch : str
        Folder on each node's local disk, where workers spill. The job's shell expands variables,
        and nothing else.
    array_limit : int
        Maximum number of concurrent tasks of a job array; 0 for no limit.
    compss_options : tuple of str
        Further options of ``enqueue_compss``.
    compss_modules : tuple of str
        Additional modules for COMPSs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str
    description: str
    nodes: PositiveInt
    sockets: PositiveInt
    cores_per_socket: PositiveInt
    memory_gib: PositiveFloat
    hours: PositiveFloat
    partition: str = ""
    account: str = ""
    qos: str = ""
    constraint: str = ""
    exclusive: bool = True
    required: tuple[Literal["partition", "account", "qos"], ...] = ()
    interfaces: dict[Literal["fabric", "ethernet"], str] = {}
    network: Literal["", "fabric", "ethernet"] = ""
    batch_options: tuple[str, ...] = ()
    step_options: tuple[str, ...] = ()
    worker_options: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    venv: str = ""
    python: str = "python"
    environment: dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], str] = {}
    prolog: tuple[str, ...] = ()
    epilog: tuple[str, ...] = ()
    scratch: Annotated[str, Field(pattern=SCRATCH)] = "${TMPDIR:-/tmp}"
    array_limit: NonNegativeInt = 1
    compss_options: tuple[str, ...] = ()
    compss_modules: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _network_is_known(self) -> Self:
        if self.network and self.network not in self.interfaces:
            raise ValueError(f"network is {self.network!r}, which is not among the interfaces")
        return self

    @property
    def cores(self) -> int:
        """Cores of a node."""
        return self.sockets * self.cores_per_socket

    @property
    def memory_bytes(self) -> int:
        """Memory of a node that a job may use."""
        return int(self.memory_gib * GIB)

    @property
    def seconds(self) -> int:
        """Maximum time limit of a job, in seconds."""
        return int(self.hours * 3600)


def site_names() -> tuple[str, ...]:
    """Return the names of the profiles in the package.

    Examples
    --------
    >>> site_names()
    ('generic', 'local', 'marenostrum4', 'marenostrum5')
    """
    return tuple(sorted(path.stem for path in (SITES).glob("*.toml")))


def load_site(name_or_path: str) -> Site:
    """Load a profile of the package by its name, or one from a TOML file.

    Examples
    --------
    >>> site = load_site("marenostrum4")
    >>> site.cores, site.sockets
    (48, 2)
    """
    if name_or_path in site_names():
        path = SITES / f"{name_or_path}.toml"
    else:
        path = Path(name_or_path)
        if not path.is_file():
            raise ProfileError(
                f"--site {name_or_path}: neither a file nor one of the profiles that ship, which "
                f"are {', '.join(site_names())}"
            )
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"cannot read the site profile {path}: {error}") from error
    return parse_site(text, path.stem, str(path))


def parse_site(text: str, name: str, origin: str) -> Site:
    """Parse a profile; `origin` names it in messages.

    Examples
    --------
    >>> parse_site("nodes 4", "mine", "mine.toml")
    Traceback (most recent call last):
        ...
    spliter_experiments.slurm.errors.ProfileError: mine.toml is not TOML: Expected '=' ...
    """
    try:
        return Site.model_validate({**parse_toml(text), "name": name})
    except ValidationError as error:
        raise ProfileError(f"{origin} is not a site profile:\n{mistakes(error)}") from error
    except ValueError as error:
        raise ProfileError(f"{origin} is not TOML: {error}") from error
