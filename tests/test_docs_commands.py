"""Every command that the pages show can be typed as it stands.

A command is given to a shell in which no program is run: what it would have run is noted, with its
words as the program would get them, and each of these is judged by the program's own parser or,
where that costs next to nothing, run in a short form. A command that nothing here can judge fails,
so one of a new program needs a line in :data:`JUDGES`.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests.conftest import ROOT

pytest.importorskip("typer")
pytest.importorskip("distributed")

import typer
from typer.testing import CliRunner

from spliter_experiments import cli
from spliter_experiments.compare import cli as compare_cli
from spliter_experiments.compare.registry import MODULES, load_engine
from spliter_experiments.compare.ways import WAYS
from spliter_experiments.compare.workloads.app import App, ways_on
from spliter_experiments.evaluation import catalog
from spliter_experiments.harness.errors import ClusterError
from spliter_experiments.harness.options import parse_ways
from spliter_experiments.harness.workload import Workload

pytestmark = pytest.mark.thorough

PAGES: Final = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "slurm" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
BLOCK = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)
INLINE = re.compile(
    r"`((?:[A-Z]+=\S+ )?(?:spliter [a-z]|scripts/|python benchmarks/|python -m benchmarks)[^`]*)`"
)
FILE = re.compile(r"<!-- file: (\S+) -->")

SHORT: Final[dict[tuple[str, ...], tuple[str, ...]]] = {
    ("experiment", "list"): (),
    ("experiment", "run"): ("--dry-run",),
    ("experiment", "show"): (),
    ("slurm",): ("--dry-run",),
}
"""Commands of ``spliter`` that are run, and what makes them short."""

PACKAGES: Final = {"hypothesis", "pre-commit", "pytest", "xgboost"}
"""What the pages install beside SplIter."""

NOTED = """
record() { printf '%s\\0' "$#" "$@" >>"$RECORD"; }
command_not_found_handle() { record "$@"; }
source() { record source "$@"; }
export() { record export "$@"; builtin export "$@"; }
"""
"""Nothing is on the PATH of the shell, so every program is one that it does not find."""


@dataclass(frozen=True)
class Shown:
    """A command on a page, with what the page says that it prints."""

    page: Path
    line: int
    text: str
    printed: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def commands_of(page: Path, text: str) -> Iterator[Shown]:
    """Find the commands in the blocks of a page.

    One begins with ``$ `` and goes on after a backslash, within quotes, and after a prompt ``> ``.
    """
    for block in BLOCK.finditer(text):
        lines = block[1].splitlines()
        first = text[: block.start()].count("\n") + 2
        starts = [at for at, line in enumerate(lines) if line.startswith("$ ")]
        assert starts[:1] == [0], f"{page}:{first}: a block begins with a command"
        for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
            at = start + 1
            while at < end and goes_on("\n".join(lines[start:at]), lines[at]):
                at += 1
            typed = "\n".join(line.removeprefix("> ") for line in lines[start:at])
            yield Shown(page, first + start, typed.removeprefix("$ "), tuple(lines[at:end]))


def goes_on(before: str, line: str) -> bool:
    try:
        shlex.split(before.removesuffix("\\"), comments=True)
    except ValueError:  # quotes are open
        return True
    return before.endswith("\\") or line.startswith("> ")


SHOWN: Final = [
    found for page in PAGES for found in commands_of(page, page.read_text(encoding="utf-8"))
]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a stand-in for each script, and the scenario that a page shows to be wrong."""
    folder = tmp_path_factory.mktemp("stage")
    shell = shutil.which("bash")
    if shell is None:
        pytest.skip("needs bash")
    for script in (ROOT / "scripts").iterdir():
        if os.access(script, os.X_OK) and script.is_file():
            stand_in = folder / "scripts" / script.name
            stand_in.parent.mkdir(exist_ok=True)
            stand_in.write_text(f'#!{shell}\n{NOTED}\nrecord "$0" "$@"\n', encoding="utf-8")
            stand_in.chmod(0o755)
    scenario = (Path(catalog.__file__).parent / "catalog" / "fig09.toml").read_text("utf-8")
    assert "\nbins = 4\n" in scenario
    mistaken = scenario.replace("\nbins = 4\n", "\nbins = -4\n")
    (folder / "mine.toml").write_text(mistaken, encoding="utf-8")
    return folder


def programs_of(text: str, stage: Path) -> list[list[str]]:
    """Return the words of each program that a shell would run, in the order in which they start."""
    record = stage / "record"
    record.write_bytes(b"")
    done = subprocess.run(
        ["bash", "-uc", NOTED + text],
        cwd=stage,
        executable=shutil.which("bash"),
        env={"HOME": "/home/me", "PATH": "/nowhere", "RECORD": str(record), "SCRATCH": "/scratch"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rest = record.read_text(encoding="utf-8").split("\0")[:-1]
    programs = []
    while rest:
        size = int(rest[0])
        programs.append(rest[1 : size + 1])
        rest = rest[size + 1 :]
    return programs


@pytest.mark.parametrize("shown", SHOWN, ids=lambda shown: shown.where)
def test_command_can_be_typed(
    shown: Shown, stage: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    monkeypatch.chdir(stage)
    desk = Desk(shown, monkeypatch, pytestconfig)
    programs = programs_of(shown.text, stage)
    assert programs, f"{shown.where}: nothing is run: {shown.text}"
    for words in programs:
        try:
            desk.judge(words)
        except Exception as wrong:
            raise AssertionError(f"{shown.where}: {shlex.join(words)}\n{told(wrong)}") from wrong


def told(wrong: Exception) -> str:
    return str(wrong.format_message() if hasattr(wrong, "format_message") else wrong)


class ParsedError(Exception):
    """Arguments were taken: there is no need to go on."""


@dataclass(frozen=True)
class Desk:
    """Judges the programs of one command."""

    shown: Shown
    patch: pytest.MonkeyPatch
    config: pytest.Config

    def judge(self, words: Sequence[str]) -> None:
        program = Path(words[0]).name if "bin/" in words[0] else words[0]
        if program.startswith("scripts/"):
            script(words)
        elif program in JUDGES:
            JUDGES[program](self, words[1:])
        else:
            raise AssertionError("what this program takes is not known to this test: see JUDGES")

    def spliter(self, arguments: Sequence[str]) -> None:
        """Parse; read what the options of comparisons say; run what takes no time."""
        command = typer.main.get_command(cli.app)
        leaf = leaf_of(command, arguments)
        if leaf in SHORT:
            self._run([*arguments, *SHORT[leaf]])
            return
        assert not self.shown.printed, "what it prints is not looked at"
        if leaf[:1] == ("compare",):
            self.patch.setattr(compare_cli, "compare", read_options)
            self._run(arguments)
        else:
            commands_below(command)[leaf].callback = None
            command.main([*arguments], standalone_mode=False)

    def _run(self, arguments: Sequence[str]) -> None:
        done = CliRunner().invoke(cli.app, arguments)
        expected = list(self.shown.printed)
        wrong = expected[:1] != [] and expected[0].startswith("Error: ")
        assert done.exit_code == (2 if wrong else 0), done.output
        lines = done.output.splitlines()
        if expected[-1:] == ["..."]:
            del expected[-1], lines[len(expected) :]
        if expected:
            assert comparable(lines) == comparable(expected)

    def python(self, arguments: Sequence[str]) -> None:
        match arguments:
            case ["-c", code]:
                import_what(code)
            case ["-m", "venv", _]:
                pass
            case ["-m", "timeit", "-s", setup, statement]:
                import_what(setup)
                ast.parse(statement)
            case ["-m", "benchmarks" | "tests.chaos" as package, *rest]:
                self._benchmark(ROOT / package.replace(".", "/") / "__main__.py", rest)
            case ["-m", module, *rest] if module.startswith(("benchmarks.", "tests.")):
                self._benchmark(ROOT / f"{module.replace('.', '/')}.py", rest)
            case [name, *rest] if name.startswith("benchmarks/"):
                self._benchmark(ROOT / name, rest)
            case [name]:
                files = FILE.findall(self.shown.page.read_text(encoding="utf-8"))
                assert name in files, f"the page prints no file {name}"
            case _:
                raise AssertionError("what Python is to do with this is not known to this test")

    def _benchmark(self, path: Path, arguments: Sequence[str]) -> None:
        """Run a script up to where its arguments are parsed."""
        parse = argparse.ArgumentParser.parse_args

        def parse_only(parser: argparse.ArgumentParser, given: Any = None) -> None:
            parse(parser, given)
            raise ParsedError

        self.patch.setattr(argparse.ArgumentParser, "parse_args", parse_only)
        self.patch.setattr(sys, "argv", [str(path), *arguments])
        self.patch.syspath_prepend(path.parent)
        try:
            with pytest.raises(ParsedError):
                runpy.run_path(str(path), run_name="__main__")
        except SystemExit as refused:
            raise AssertionError(f"{path.name} does not take these arguments") from refused

    def pytest(self, arguments: Sequence[str]) -> None:
        for word in arguments:
            if word.startswith("-"):
                self.config.getoption(word.partition("=")[0])  # a ValueError if there is none
            else:
                assert (ROOT / word).exists(), f"there is no {word}"

    def runcompss(self, arguments: Sequence[str]) -> None:
        """COMPSs has a parser of its own, out of reach; what follows our program has not."""
        (at,) = (i for i, word in enumerate(arguments) if word.endswith(".py"))
        if arguments[at].endswith("__main__.py"):
            self.spliter(arguments[at + 1 :])


def comparable(lines: Sequence[str]) -> list[list[str]]:
    """Return words: columns may be wider elsewhere, and names of jobs are those of a folder."""
    text = re.sub("─+", "─", re.sub(r"\bspliter-[0-9a-f]{6}-", "spliter-", "\n".join(lines)))
    return [line.split() for line in text.splitlines()]


def leaf_of(command: Any, arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the subcommand that the arguments choose."""
    names: list[str] = []
    for word in arguments:
        below = subcommands(command)
        if word not in below:
            break
        command = below[word]
        names.append(word)
    return tuple(names)


def subcommands(command: Any) -> dict[str, Any]:
    """Return the commands of a group, imported; none of a command that is no group."""
    if not hasattr(command, "list_commands"):
        return {}
    return {name: command.get_command(None, name) for name in command.list_commands(None)}


def commands_below(command: Any, *names: str) -> dict[tuple[str, ...], Any]:
    """Return a command and all its subcommands, by their names."""
    found = {names: command}
    for name, below in subcommands(command).items():
        found |= commands_below(below, *names, name)
    return found


def read_options(workload: Workload, options: Any) -> None:
    """Stand in for a comparison: names of ways and numbers of blocks are read, nothing is run."""
    assert workload.each()
    known = WAYS[workload.name]
    if isinstance(workload, App):
        assert options.blockings
        try:
            known = ways_on(load_engine(options.backend), workload)
        except ClusterError:  # the engine is not installed
            assert importlib.util.find_spec(MODULES[options.backend])
    parse_ways(options.ways, known)


def import_what(code: str) -> None:
    """Run the imports of a program, and nothing else of it."""
    program = ast.parse(code)
    program.body = [node for node in program.body if isinstance(node, ast.Import | ast.ImportFrom)]
    exec(compile(program, "<shown>", "exec"), {})


def script(words: Sequence[str]) -> None:
    """A stand-in was found, so the script is there; its options stand in its text."""
    text = (ROOT / "scripts" / Path(words[0]).name).read_text(encoding="utf-8")
    hands_on = '"$@"' in text
    for word in words[1:]:
        assert word in text or hands_on, f"{words[0]} knows nothing of {word}"


def pip(arguments: Sequence[str]) -> None:
    assert arguments[0] == "install"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for word in arguments[1:]:
        assert not word.startswith("spliter"), "package indexes have another project of that name"
        own = re.fullmatch(r"(?:\.|/path/to/the/checkout|pyspliter)(?:\[(.*)\])?", word)
        if own:
            extras = set((own[1] or "").split(",")) - {""}
            assert extras <= {*project["optional-dependencies"]}, f"there is no such extra: {word}"
        else:
            assert word in PACKAGES or (ROOT / word / "pyproject.toml").is_file(), word


def dask(arguments: Sequence[str]) -> None:
    from distributed.cli.dask_scheduler import main

    assert arguments[0] == "scheduler"
    context = main.make_context("dask scheduler", [*arguments[1:]])
    for module in context.params["preload"]:
        importlib.import_module(module)


def export(arguments: Sequence[str]) -> None:
    import dask.config

    if arguments[0].startswith("SBATCH_"):
        sbatch([f"--{word.removeprefix('SBATCH_').lower()}" for word in arguments])
        return
    (name, _, value) = arguments[0].partition("=")
    (key,) = dask.config.collect_env({name: value})
    asked = name.removeprefix("DASK_").lower().replace("__", ".")
    dask.config.get(asked)  # a KeyError if Dask has no such setting
    assert key == asked.partition(".")[0]


def activate(arguments: Sequence[str]) -> None:
    assert [Path(name).parts[-2:] for name in arguments] == [("bin", "activate")]


def sbatch(arguments: Sequence[str]) -> None:
    """Its options are those that a page may show; what it submits has to be there."""
    options = [word for word in arguments if word.startswith("--")]
    assert {word.partition("=")[0] for word in options} <= {
        *("--account", "--qos", "--nodes", "--time"),
    }
    for script in arguments[len(options) :][:1]:
        assert (ROOT / script).is_file(), script


def bash(arguments: Sequence[str]) -> None:
    assert [Path(name).name for name in arguments] == ["submit.sh"], "`spliter slurm` writes it"


def pre_commit(arguments: Sequence[str]) -> None:
    assert [*arguments] == ["install"]
    assert (ROOT / ".pre-commit-config.yaml").is_file()


def mpiexec(words: Sequence[str]) -> None:
    match words:
        case ["-n", ranks, "python", program]:
            assert int(ranks) > 0
            assert program.endswith(".py")
        case _:
            raise AssertionError("expected mpiexec -n RANKS python PROGRAM.py")


JUDGES: Final[dict[str, Callable[[Desk, Sequence[str]], None]]] = {
    "bash": lambda _, words: bash(words),
    "dask": lambda _, words: dask(words),
    "export": lambda _, words: export(words),
    "module": lambda _, words: None,
    # tests/layout/test_mpi.py runs the program.
    "mpiexec": lambda _, words: mpiexec(words),
    "pip": lambda _, words: pip(words),
    "pre-commit": lambda _, words: pre_commit(words),
    "pytest": Desk.pytest,
    "python": Desk.python,
    "python3": Desk.python,
    "runcompss": Desk.runcompss,
    "sbatch": lambda _, words: sbatch(words),
    "source": lambda _, words: activate(words),
    "spliter": Desk.spliter,
    "sudo": Desk.judge,
}
"""How the arguments of each program are judged."""


def test_commands_within_sentences_name_what_there_is(
    stage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may leave out what they must be given, so only names and options are looked at."""
    seen = 0
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for span in INLINE.finditer(text):
            shown = Shown(page, text[: span.start()].count("\n") + 1, " ".join(span[1].split()))
            seen += 1
            words = shlex.split(re.sub(r"^[A-Z]+=\S+ ", "", shown.text))
            if words[0] == "spliter":
                wrong = unknown_to_spliter(words[1:])
            else:
                wrong = [word for word in words if "/" in word and not (ROOT / word).exists()]
            assert not wrong, f"{shown.where}: there is no {wrong}"
    assert seen > 50


def unknown_to_spliter(words: Sequence[str]) -> list[str]:
    """Return the words before the first option that name no command, and options there are not."""
    below = commands_below(typer.main.get_command(cli.app))
    leaf = leaf_of(below[()], words)
    options = {
        option
        for names, command in below.items()
        if names[: len(leaf)] == leaf
        for parameter in command.params
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    is_group = len([names for names in below if names[: len(leaf)] == leaf]) > 1
    further = [*words[len(leaf) : len(leaf) + 1]] if is_group else []
    return [word for word in further if not word.startswith("-")] + [
        word for word in words if word.startswith("--") and word not in options
    ]
