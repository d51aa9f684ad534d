"""Look up known vulnerabilities of what is installed, in bounded time; `scripts/audit --ci` does.

    python scripts/vulnerabilities.py [ARGUMENTS OF PIP-AUDIT]

Ends with 1 if a vulnerability that has a fix is known and ``audit-exceptions.txt`` does not list
it, if that file has a mistake, or if there is no pip-audit. Where no answer comes it says so, and
ends with 0: a machine without a network cannot look anything up.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

EXCEPTIONS = Path(__file__).with_name("audit-exceptions.txt")
LIMIT_SECONDS = 40
PROBE = "numpy"
ALL_INSTALLED = ("--local", "--skip-editable")


def say(line: str) -> None:
    """Write a line to standard output."""
    sys.stdout.write(f"{line}\n")


def read_exceptions(text: str) -> dict[tuple[str, str], str]:
    """Return the reason for each vulnerability and package of the file: ``ID package why``."""
    found = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        words = line.split(maxsplit=2)
        if len(words) < 3:
            raise ValueError(f"line {number} is not `ID package why`: {line}")
        vulnerability, package, why = words
        found[vulnerability, package.lower()] = why
    return found


def ask(arguments: Sequence[str]) -> dict[str, Any] | str:
    """Return the answer of pip-audit, or why there is none."""
    words = [sys.executable, "-m", "pip_audit", *arguments]
    words += ["--progress-spinner", "off", "--format", "json", "--timeout", "10"]
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {LIMIT_SECONDS} s"
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        return (done.stderr.strip().splitlines() or ["pip-audit said nothing"])[-1]
    return answer if isinstance(answer, dict) else "pip-audit's answer is not understood"


def ask_about_one(name: str) -> str:
    """Return why the index knows of no vulnerabilities, nothing if it does: asked of one package.

    Many an index that is a copy of another has the packages alone. It need not be asked hundreds
    of times.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "one.txt"
        file.write_text(f"{name}=={version(name)}\n", encoding="utf-8")
        answer = ask(["--requirement", str(file), "--no-deps", "--disable-pip"])
    if isinstance(answer, str):
        return answer
    skipped = [
        package["skip_reason"] for package in answer["dependencies"] if "skip_reason" in package
    ]
    return f"the index has no answer for {name} ({skipped[0]})" if skipped else ""


def judge(answer: dict[str, Any], exceptions: dict[tuple[str, str], str]) -> int:
    """Say what was found; return how many of them have to be mended."""
    to_mend, packages, excepted = 0, 0, set[tuple[str, str]]()
    unknown: list[str] = []
    for package in answer["dependencies"]:
        name = package["name"].lower()
        if "skip_reason" in package:
            unknown.append(name)
            continue
        packages += 1
        for found in package["vulns"]:
            names = {found["id"], *found.get("aliases", ())}
            listed = sorted((one, name) for one in names if (one, name) in exceptions)
            what = f"{name} {package['version']}: {found['id']}"
            if listed:
                excepted.update(listed)
                say(f"{what}, excepted: {exceptions[listed[0]]}")
            elif not found["fix_versions"]:
                say(f"{what}, which has no fix yet")
            else:
                to_mend += 1
                say(f"{what}, mended in {', '.join(found['fix_versions'])}")
    for vulnerability, name in sorted(exceptions.keys() - excepted):
        say(f"{EXCEPTIONS.name}: {vulnerability} of {name} was not found and need not be listed")
    if unknown:
        say(f"NOT CHECKED: {len(unknown)} that the index has no answer for: {' '.join(unknown)}")
    say(f"{packages} packages looked up, {to_mend} vulnerabilities to mend")
    return to_mend


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    if importlib.util.find_spec("pip_audit") is None:
        say("NOT CHECKED: pip-audit is not installed (pip install pip-audit)")
        return 1
    try:
        exceptions = read_exceptions(EXCEPTIONS.read_text(encoding="utf-8"))
    except ValueError as error:
        say(f"{EXCEPTIONS.name}: {error}")
        return 1
    answer: dict[str, Any] | str = ask_about_one(PROBE)
    if not answer:
        answer = ask(arguments or ALL_INSTALLED)
    if isinstance(answer, str):
        say(f"NOT CHECKED: known vulnerabilities could not be looked up: {answer}")
        return 0
    return 1 if judge(answer, exceptions) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
