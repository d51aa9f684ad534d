"""The audit that needs no network, in every run; what does need it never passes unseen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT


def audit(*arguments: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the script on the environment of the tests."""
    found = "" if path is None else str(path)
    return subprocess.run(
        [str(ROOT / "scripts" / "audit"), *arguments],
        env={**os.environ, "PYTHON": sys.executable, "PYTHONPATH": found},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_nothing_is_found_and_what_was_not_done_is_said() -> None:
    done = audit()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "NOT CHECKED" in done.stdout


@pytest.mark.parametrize(
    ("says", "status", "wanted"),
    [
        ("No known vulnerabilities found", 0, 0),
        ("Found 1 known vulnerability in 1 package", 1, 1),
        ("No known vulnerabilities found\\nx could not be audited: x (1.0)", 0, 1),
    ],
)
def test_vulnerabilities_are_never_passed_unseen(
    says: str, status: int, wanted: int, tmp_path: Path
) -> None:
    # Stands in for pip-audit: no test asks the network.
    (tmp_path / "pip_audit.py").write_text(
        f"import sys\nprint('{says}')\nsys.exit(0 if '--version' in sys.argv else {status})\n",
        encoding="utf-8",
    )
    done = audit("--online", path=tmp_path)
    assert done.returncode == wanted, done.stdout + done.stderr


def test_other_options_are_refused() -> None:
    assert audit("--offline").returncode == 2


@pytest.mark.parametrize(
    ("licence", "known"),
    [
        ("MIT", True),
        ("BSD 3-Clause License", True),
        ("GNU Lesser General Public License v3 (LGPLv3)", True),
        ("GPL-3.0-only", False),
        ("GNU General Public License v3", False),
        ("MIT and AGPL-3.0", False),
        ("", False),
    ],
)
def test_licences_are_told_apart(licence: str, known: bool, tmp_path: Path) -> None:
    about = tmp_path / "some-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: some\nVersion: 1\nLicense: {licence}\n", encoding="utf-8"
    )
    done = subprocess.run(
        [sys.executable, "-S", str(ROOT / "scripts" / "licences.py")],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode == 0) == known, done.stdout + done.stderr
