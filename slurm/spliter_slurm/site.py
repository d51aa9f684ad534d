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
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_validator,
)

from spliter_experiments.harness.errors import ProfileError
from spliter_experiments.harness.files import mistakes, parse_toml

SITES = Path(__file__).parent / "sites"
"""Folder of the profiles in the package."""

GIB = 2**30

SCRATCH = (
    r"^(?:[^\x00-\x1f\"`\\$]|\$[A-Za-z_][A-Za-z0-9_]*"
    r"|\$\{[A-Za-z_][A-Za-z0-9_]*(?::?-(?:[^\x00-\x1f\"`\\${}]|\$[A-Za-z_][A-Za-z0-9_]*)*)?\})+$"
)
"""Pattern of a path inside double quotes of the shell, with variables and their defaults.

Other expansions are refused: ``${NAME@P}`` and ``${NAME[INDEX]}`` run commands.
"""


class Site(BaseModel):
    """Profile of one cluster; sizes are per node.

    ``sites/generic.toml`` explains every entry but ``compss_options``, further options of
    ``enqueue_compss``, ``compss_modules``, additional modules for it, and ``storage_jar``, the
    storage interface for COMPSs over dataClay. The job's shell expands
    variables in ``scratch``, and nothing else.
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
    launcher: Literal["srun", "mpi"] = "srun"
    mpi_command: Annotated[tuple[str, ...], Field(min_length=1)] = ("mpiexec",)
    scratch: Annotated[str, Field(pattern=SCRATCH)] = "${TMPDIR:-/tmp}"
    compss_options: tuple[str, ...] = ()
    compss_modules: tuple[str, ...] = ()
    storage_jar: str = ""

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
    spliter_experiments.harness.errors.ProfileError: mine.toml is not TOML: Expected '=' ...
    """
    try:
        return Site.model_validate({**parse_toml(text), "name": name})
    except ValidationError as error:
        raise ProfileError(f"{origin} is not a site profile:\n{mistakes(error)}") from error
    except ValueError as error:
        raise ProfileError(f"{origin} is not TOML: {error}") from error
