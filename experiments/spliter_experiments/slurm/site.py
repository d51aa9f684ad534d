"""Site profiles: what a cluster has, wants to be told, and calls its networks.

A profile is a TOML file. Those that ship are in the folder ``sites`` next to this module;
users can name a file of their own.
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

from spliter_experiments.evaluation._toml_lines import lines_of, nearest_line, parse_toml
from spliter_experiments.slurm.errors import ProfileError

SITES = Path(__file__).parent / "sites"
"""Folder of the profiles that ship."""

GIB = 2**30

SCRATCH = r"^(?:[^\x00-\x1f\"`\\$]|\$[A-Za-z_{])+$"
"""A path between double quotes of the shell: variables, and nothing that runs or ends them."""


class Site(BaseModel):
    """One cluster, as its profile describes it. Sizes are per node.

    Parameters
    ----------
    name : str
        Of the profile; the file's.
    description : str
        For people.
    nodes : int
        The most that one job gets.
    sockets, cores_per_socket : int
        Processors, and cores in each.
    memory_gib : float
        What the programs of a job may use together.
    hours : float
        The longest time limit of a job.
    partition, account, qos, constraint : str
        What ``sbatch`` is told under these names; empty to say nothing.
    exclusive : bool
        Whether a job has its nodes to itself.
    required : tuple of str
        Which of partition, account and qos a user has to give.
    interfaces : mapping of str to str
        Network interfaces by what they are called here: ``fabric`` (Omni-Path, InfiniBand) and
        ``ethernet``. Without one, services take the address of the host's name.
    network : str
        The interface to take unless another is asked for; empty for none.
    batch_options : tuple of str
        Further options of ``sbatch``, as they are written: ``--switches=1``.
    step_options : tuple of str
        Options of every ``srun``. Since SLURM 20.11 steps must say ``--overlap`` to share cores.
    worker_options : tuple of str
        Options of the ``srun`` that starts workers: how they are bound to cores.
    modules : tuple of str
        To load, after those of the login have been unloaded.
    venv : str
        Virtual environment to activate; empty for none.
    python : str
        The interpreter.
    environment : mapping of str to str
        To export.
    prolog, epilog : tuple of str
        Lines of shell before the services start and after they have ended.
    scratch : str
        Folder on each node's own disk, where workers spill. The shell of the job fills in
        variables, and nothing else.
    array_limit : int
        How many tasks of a job array run at once; 0 for all that fit.
    compss_options : tuple of str
        Further options of ``enqueue_compss``.
    compss_modules : tuple of str
        To load for COMPSs beside the others.
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
        """The longest time limit of a job."""
        return int(self.hours * 3600)


def site_names() -> tuple[str, ...]:
    """Return the names of the profiles that ship.

    Examples
    --------
    >>> site_names()
    ('generic', 'local', 'marenostrum4', 'marenostrum5')
    """
    return tuple(sorted(path.stem for path in (SITES).glob("*.toml")))


def load_site(name_or_path: str) -> Site:
    """Read a profile.

    Parameters
    ----------
    name_or_path : str
        The name of one that ships, or a TOML file.

    Raises
    ------
    ProfileError
        If there is none, or it has something that cannot be used; the message has the line.

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
    """Read the text of a profile.

    Parameters
    ----------
    text : str
        TOML.
    name : str
        What to call the site.
    origin : str
        What to call the text in messages.

    Raises
    ------
    ProfileError
        If it is not one: with the line of every mistake.

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
        lines = lines_of(text)
        wrong = []
        for found in error.errors():
            line = nearest_line(lines, found["loc"])
            at = ".".join(map(str, found["loc"]))
            what = found["msg"].removeprefix("Value error, ")
            wrong.append(f"  {f'line {line}: ' if line else ''}{at + ': ' if at else ''}{what}")
        raise ProfileError("\n".join([f"{origin} is not a site profile:", *wrong])) from error
    except ValueError as error:
        raise ProfileError(f"{origin} is not TOML: {error}") from error
