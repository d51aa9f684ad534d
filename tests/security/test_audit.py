"""The audit that needs no network, in every run; what does need it never passes unseen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.running import run_command


def audit(*arguments: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    found = "" if path is None else str(path)
    return run_command(
        [str(ROOT / "scripts" / "audit"), *arguments],
        env={**os.environ, "PYTHON": sys.executable, "PYTHONPATH": found},
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


def answer(*packages: dict[str, Any]) -> str:
    """Return what pip-audit says of packages."""
    return json.dumps({"dependencies": packages, "fixes": []})


def package(fixed: str | None = None, **more: Any) -> dict[str, Any]:
    """Return a package with one vulnerability, which may have been mended in a later version."""
    found = {"id": "CVE-1", "fix_versions": [fixed] if fixed else [], "aliases": ["GHSA-1"]}
    return {"name": "Some", "version": "1", "vulns": [found]} | more


@pytest.mark.parametrize(
    ("says", "exceptions", "wanted", "words"),
    [
        (answer(package(vulns=[])), "", 0, "1 packages looked up, 0 vulnerabilities"),
        (answer(package("2")), "", 1, "CVE-1, mended in 2"),
        (answer(package("2")), "GHSA-1 some the code is not called", 0, "the code is not called"),
        (answer(package("2")), "CVE-1 other it is not called", 1, "need not be listed"),
        (answer(package("2")), "CVE-1 some", 1, "line 1 is not"),
        (answer(package()), "", 0, "which has no fix yet"),
        (answer({"name": "x", "skip_reason": "none"}), "", 0, "no answer for numpy (none)"),
        ("", "", 0, "NOT CHECKED"),
    ],
)
def test_builds_fail_for_what_can_be_mended(
    says: str, exceptions: str, wanted: int, words: str, tmp_path: Path
) -> None:
    # Stands in for pip-audit, beside a copy of the script that has exceptions of its own.
    (tmp_path / "pip_audit.py").write_text(f"print({says!r})\n", encoding="utf-8")
    (tmp_path / "audit-exceptions.txt").write_text(exceptions, encoding="utf-8")
    script = ROOT / "scripts" / "vulnerabilities.py"
    (tmp_path / script.name).write_text(script.read_text(encoding="utf-8"), encoding="utf-8")
    done = run_command(
        [sys.executable, str(tmp_path / script.name)],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == wanted, done.stdout + done.stderr
    assert words in done.stdout


def test_builds_go_on_where_nothing_answers(tmp_path: Path) -> None:
    (tmp_path / "pip_audit.py").write_text(
        "import sys\nsys.exit('requests.ConnectionError: no route')\n", encoding="utf-8"
    )
    done = audit("--ci", path=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "NOT CHECKED: known vulnerabilities could not be looked up: requests." in done.stdout


def test_exceptions_that_ship_can_be_read() -> None:
    for line in (ROOT / "scripts" / "audit-exceptions.txt").read_text("utf-8").splitlines():
        assert line.startswith("#") or len(line.split(maxsplit=2)) == 3, line


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
    done = run_command(
        [sys.executable, "-S", str(ROOT / "scripts" / "licences.py")],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert (done.returncode == 0) == known, done.stdout + done.stderr
