"""What ``scripts/check-versions`` and ``scripts/release`` have to know of the project's files.

``release_checks.py lowest EXTRA...`` prints the oldest version of everything that the project and
those extras ask for, as constraints for pip; ``release_checks.py version`` prints the version that
the sources state, and ``release_checks.py problems`` what keeps it from being released.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).resolve().parent.parent


def lowest(pyproject: str, extras: Iterable[str]) -> list[str]:
    r"""Return what to pin so that the oldest supported versions are installed.

    Parameters
    ----------
    pyproject : str
        Contents of ``pyproject.toml``.
    extras : iterable of str
        Optional dependencies to look at beside the project's own.

    Returns
    -------
    list of str
        ``name==version`` for every requirement with a lower bound that applies here, sorted.

    Raises
    ------
    KeyError
        If there is no such extra.

    Examples
    --------
    >>> lowest('[project]\\nname = "a"\\ndependencies = ["numpy>=2.0", "b"]', [])
    ['numpy==2.0']
    """
    project = tomllib.loads(pyproject)["project"]
    wanted = list(project["dependencies"])
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    return sorted({f"{name}=={version}" for name, version in _lower_bounds(wanted)})


def _lower_bounds(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        requirement = Requirement(line)
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        for bound in requirement.specifier:
            if bound.operator in (">=", "=="):
                yield requirement.name, bound.version


def written_version(source: str) -> str:
    """Return the version that ``spliter/__init__.py`` states.

    Raises
    ------
    ValueError
        If it states none, or several.

    Examples
    --------
    >>> written_version('__version__ = "1.2.3"')
    '1.2.3'
    """
    found = re.findall(r'^__version__ = "([^"]+)"$', source, flags=re.MULTILINE)
    if len(found) != 1:
        raise ValueError(f"spliter/__init__.py states {len(found)} versions, not one")
    return str(found[0])


def problems(version: str, changelog: str, tags: Iterable[str]) -> list[str]:
    r"""Return what keeps a version from being released; nothing if it can be.

    Parameters
    ----------
    version : str
        As written in the sources.
    changelog : str
        Contents of ``CHANGELOG.md``.
    tags : iterable of str
        Tags of the repository; a release is ``v`` and its version.

    Returns
    -------
    list of str
        One line each.

    Examples
    --------
    >>> log = "## [Unreleased]\\n## [1.1.0] - 2026-01-31\\n### Added\\n- a thing\\n"
    >>> problems("1.1.0", log, ["v1.0.0"])
    []
    >>> problems("1.1.0", log, ["v1.1.0"])
    ['there is a tag v1.1.0 already: raise __version__ in spliter/__init__.py']
    """
    try:
        parsed = Version(version)
    except InvalidVersion:
        return [f"{version!r} is not a version (PEP 440)"]
    found = []
    if str(parsed) != version:
        found.append(f"write the version as {parsed}, not {version}")
    known = set(tags)
    if f"v{version}" in known:
        found.append(f"there is a tag v{version} already: raise __version__ in spliter/__init__.py")
    newer = [tag for tag in sorted(known) if (other := _version_of(tag)) and other > parsed]
    if newer:
        found.append(f"{version} is older than what has been released: {', '.join(newer)}")
    heading = re.compile(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", re.MULTILINE)
    if not heading.search(changelog):
        found.append(f"CHANGELOG.md has no section '## [{version}] - YYYY-MM-DD'")
    elif not _section(changelog, version).count("\n- "):
        found.append(f"the section of {version} in CHANGELOG.md lists no changes")
    if "\n- " in _section(changelog, "Unreleased"):
        found.append("CHANGELOG.md still lists changes under [Unreleased]")
    return found


def _version_of(tag: str) -> Version | None:
    try:
        return Version(tag.removeprefix("v")) if tag.startswith("v") else None
    except InvalidVersion:
        return None


def _section(changelog: str, name: str) -> str:
    """Return what stands under a heading, up to the next one of its level."""
    _, _, rest = changelog.partition(f"## [{name}]")
    return rest.partition("\n## ")[0]


def _stated() -> str:
    return written_version((ROOT / "spliter" / "__init__.py").read_text(encoding="utf-8"))


def main(arguments: list[str]) -> int:
    """Run one of the two commands."""
    match arguments:
        case ["lowest", *extras]:
            lines = lowest((ROOT / "pyproject.toml").read_text(encoding="utf-8"), extras)
            sys.stdout.writelines(f"{line}\n" for line in lines)
            return 0
        case ["version"]:
            sys.stdout.write(f"{_stated()}\n")
            return 0
        case ["problems"]:
            changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
            git = ["git", "-C", str(ROOT), "tag", "--list"]
            tags = subprocess.run(git, check=True, capture_output=True, text=True).stdout.split()
            found = problems(_stated(), changelog, tags)
            sys.stdout.writelines(f"{line}\n" for line in found)
            return bool(found)
    sys.stderr.write(f"{__doc__}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
