"""List the licences of what is installed, and fail on one that a BSD package may not build on.

    python scripts/licences.py

A licence counts as known if the metadata name one of :data:`FREE`. What names none of them must be
looked at: either it is in :data:`LOOKED_AT`, with the licence found there, or the command fails.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from importlib import metadata

FREE = re.compile(
    r"\b(MIT|BSD|Apache|Python Software Foundation|PSF|ISC|MPL|Mozilla|LGPL|Lesser General|Zlib"
    r"|0BSD|Unlicense|Public Domain|HPND|CNRI)\b",
    re.IGNORECASE,
)
"""Licences that leave a package that imports the other free to have its own."""

BINDING = re.compile(
    r"\bA?GPL|(?<!Lesser )General Public|Affero|Commercial|Proprietary", re.IGNORECASE
)
"""Licences that reach further; no word of theirs may stand beside a free one unseen."""

LOOKED_AT = {
    # The GPL is that of a mode for an editor, which is not installed.
    "docutils": "Public Domain; BSD; PSF",
    "mpich": "MPICH's own, permissive like BSD; a requirement of the tests alone",
    "pyspliter": "BSD-3-Clause",
}
"""Packages whose metadata do not say, and what their licence files say."""


def licence_of(package: metadata.Distribution) -> str:
    """Return what the metadata of a package say of its licence, in a line; empty for nothing.

    Parameters
    ----------
    package : Distribution
        An installed package.
    """
    about = package.metadata
    classifiers = [
        line.rpartition(" :: ")[2]
        for line in about.get_all("Classifier") or ()
        if line.startswith("License ::")
    ]
    # A whole licence text in this field begins with its name.
    said = about.get_all("License-Expression") or about.get_all("License") or [""]
    text = str(said[0]).strip()
    found = dict.fromkeys(part for part in (text.partition("\n")[0], *classifiers) if part)
    return "; ".join(found)


def judged(packages: Iterable[metadata.Distribution]) -> tuple[dict[str, str], list[str]]:
    """Return the licence of every package, and the names of those to be looked at.

    Parameters
    ----------
    packages : iterable of Distribution
        Installed packages.
    """
    said = {package.metadata["Name"]: licence_of(package) for package in packages}
    licences = {name: LOOKED_AT.get(name.lower(), text) for name, text in said.items()}
    return licences, sorted(
        name for name, text in licences.items() if not FREE.search(text) or BINDING.search(text)
    )


def main() -> int:
    """Print the list; return 1 if a package has to be looked at."""
    licences, unknown = judged(metadata.distributions())
    for name in sorted(licences, key=str.lower):
        sys.stdout.write(f"{name:32} {licences[name] or '(nothing said)'}\n")
    if unknown:
        sys.stderr.write(f"to be looked at: {', '.join(unknown)}\n")
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
