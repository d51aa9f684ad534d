"""Commands of SLURM that answer what a test tells them, and write down how they were called."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import NamedTuple

PROGRAM = """#!{python} -SE
import json, pathlib, sys, time
folder = pathlib.Path(__file__).parent
name = pathlib.Path(sys.argv[0]).name
with (folder / "calls.jsonl").open("a") as stream:
    stream.write(json.dumps([name, *sys.argv[1:]]) + "\\n")
answers = json.loads((folder / f"{{name}}.json").read_text())
answer = answers[0]
if len(answers) > 1:
    (folder / f"{{name}}.json").write_text(json.dumps(answers[1:]))
time.sleep(answer["sleep"])
sys.stdout.write(answer["out"])
sys.stderr.write(answer["err"])
sys.exit(answer["status"])
"""


class Answer(NamedTuple):
    """What a command does."""

    out: str = ""
    err: str = ""
    status: int = 0
    sleep: float = 0


class FakeSlurm:
    """A folder of commands; the last answer of each is given again and again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def answer(self, command: str, *answers: Answer) -> None:
        program = self.folder / command
        program.write_text(PROGRAM.format(python=sys.executable), encoding="utf-8")
        program.chmod(0o755)
        text = json.dumps([answer._asdict() for answer in answers])
        (self.folder / f"{command}.json").write_text(text, encoding="utf-8")

    def calls(self, command: str) -> list[list[str]]:
        """Return the arguments of each call."""
        file = self.folder / "calls.jsonl"
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        return [call[1:] for call in map(json.loads, lines) if call[0] == command]
