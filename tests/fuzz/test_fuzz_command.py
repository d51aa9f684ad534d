"""The command and what it reads, fed with anything: it works, or says in a message what is wrong.

No example starts a cluster: they are refused before, or only plan.
"""

from __future__ import annotations

import contextlib
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from spliter_experiments.cli import app
from spliter_experiments.compare.data.columns import Wanted
from spliter_experiments.compare.data.readers import open_source
from spliter_experiments.evaluation import plan_runs
from spliter_experiments.evaluation.catalog import parse_scenario, read_scenario
from spliter_experiments.evaluation.tables import plan_table
from spliter_experiments.harness.errors import ExperimentError, InputError
from spliter_slurm.site import SITES, parse_site

SCENARIO = read_scenario("9")[0]
SITE = (SITES / "generic.toml").read_text(encoding="utf-8")

odd = st.sampled_from(
    [
        *("", " ", "0", "-1", "1", "2", "1,2", ",,", "nan", "inf", "1e400", "9" * 30, "9" * 5000),
        *("[/x]", "[bold]", "$(id)", "a\nb", "\x00", "\x1b[31m", "--", "-", "'", '"', "\u0661"),
        *("9", "table1", "dask", "local", "spliter", "laptop", "full", "generic", "/", ".", "é"),
    ]
)
values = odd | st.text(max_size=8)

SHOW = ["--size", "--backend", "--configurations", "--nodes", "--repetitions"]
SLURM = [
    *("--nodes", "--repetitions", "--hours", "--account", "--qos", "--partition"),
    *("--venv", "--python", "--network"),
    *("--site", "--backend", "--configurations", "--earlier"),
]
COMPARE = [
    *("--input", "--columns", "--seed", "--backend", "--address"),
    *("--workers", "--threads", "--blocks-per-core", "--sweep", "--placement", "--rounds"),
    *("--rows", "--dims", "--datasets"),
]
# A way that there is not, as the last word on the ways: nothing is ever compared.
COMMANDS: dict[str, tuple[list[str], list[str]]] = {
    "show": (["experiment", "show", "9", "--nodes", "2"], SHOW),
    "run": (["experiment", "run", "9", "--dry-run", "--results", "there-is-none"], SHOW),
    "slurm": (
        [
            *("slurm", "9", "--nodes", "2", "--repetitions", "1", "--site", "generic"),
            *("--dry-run", "--output", "there-is-none"),
        ],
        SLURM,
    ),
    **{
        name: (["compare", name, "--ways", "none-of-that-name"], COMPARE)
        for name in ("sum", "histogram", "kmeans", "csvm", "knn")
    },
    "report": (["experiment", "report", "there-is-none"], []),
    "profile": (["profile", "there-is-none.py"], []),
    "doctor": (["doctor", "--require", "none-of-that-name"], []),
}


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    fixed, options = COMMANDS[draw(st.sampled_from(sorted(COMMANDS)))]
    chosen = draw(st.lists(st.sampled_from(options), max_size=3)) if options else []
    pairs = [(option, draw(values)) for option in chosen]
    stray = draw(st.lists(values, max_size=1))
    return [*fixed, *(word for pair in pairs for word in pair), *stray]


@contextmanager
def refused_politely() -> Iterator[None]:
    """Let errors of ours pass, which the command reports."""
    try:
        yield
    except ExperimentError as error:
        said = str(error)
    else:
        return
    assert said


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(command_lines())
@example(["experiment", "show", "9", "--repetitions", "100000000000"])
@example(["slurm", "9", "--site", "generic", "--output", "o", "--hours", "inf"])
@example(["slurm", "9", "--site", "generic", "--output", "o", "--hours", "nan"])
def test_a_command_line_is_taken_or_refused(line: list[str]) -> None:
    if line[0] == "slurm" and "--dry-run" not in line:
        line = [*line, "--dry-run"]
    done = CliRunner().invoke(app, line)
    assert isinstance(done.exception, SystemExit | None), (line, done.exception)
    assert done.exit_code in (0, 2), (line, done.output)
    if done.exit_code:
        assert done.output.strip(), line


toml_values = st.one_of(
    st.integers().map(str),
    st.floats().map(repr),
    st.sampled_from(["true", "[]", "[1]", "{}", '""', '"9 GB"', "1979-05-27", "[[1]]", '["a"]']),
    st.text(max_size=6).map(lambda text: f"'{text}'"),
    st.text(max_size=12),
)


def spoilt(text: str) -> st.SearchStrategy[str]:
    """Return texts in which some lines have other values, are gone, twice there, or cut."""
    lines = text.splitlines()
    numbers = st.integers(0, len(lines) - 1)

    def change(changes: list[tuple[int, str, str]]) -> str:
        changed = list(lines)
        for at, how, value in changes:
            key, equals, _ = changed[at].partition("=")
            changed[at] = {
                "value": f"{key}{equals}{value}",
                "gone": "",
                "twice": f"{changed[at]}\n{changed[at]}",
                "cut": changed[at][: len(changed[at]) // 2],
            }[how]
        return "\n".join(changed)

    kinds = st.sampled_from(["value", "value", "value", "gone", "twice", "cut"])
    return st.lists(st.tuples(numbers, kinds, toml_values), min_size=1, max_size=3).map(change)


@settings(max_examples=150)
@given(spoilt(SCENARIO) | st.text(max_size=200))
def test_a_scenario_is_planned_or_refused(text: str) -> None:
    with refused_politely():
        scenario = parse_scenario(text, "own.toml")
        for size in scenario.sizes:
            with refused_politely():
                plan_table(plan_runs(scenario, size, repetitions=1), "")


@settings(max_examples=100)
@given(spoilt(SITE) | st.text(max_size=200))
def test_a_site_profile_is_read_or_refused(text: str) -> None:
    with refused_politely():
        site = parse_site(text, "own", "own.toml")
        assert site.memory_bytes > 0


def npy_bytes() -> bytes:
    with tempfile.TemporaryFile() as stream:
        np.save(stream, np.arange(12.0).reshape(4, 3))
        stream.seek(0)
        return stream.read()


NPY = npy_bytes()


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """Cut a file, or write other bytes into it."""
    changed = bytearray(content[: draw(st.integers(0, len(content)))] or content)
    for at in draw(st.lists(st.integers(0, len(changed) - 1), max_size=6)):
        changed[at] = draw(st.integers(0, 255))
    return bytes(changed)


def read_all(suffix: str, content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, f"points{suffix}")
        file.write_bytes(content)
        with contextlib.suppress(InputError):
            points = open_source(str(file), Wanted())
            points.read(0, min(points.rows, 100))


def with_header(header: str) -> bytes:
    """Return a file of NumPy's with some header, and a few values."""
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + bytes(96)


@settings(max_examples=100)
@given(damaged(NPY) | st.binary(max_size=100))
@example(with_header("{'descr'( '<f8', 'fortran_order': False, 'shape': (4, 3), }"))  # a TokenError
@example(with_header(f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({10**30}, 3), }}"))
@example(with_header("-" * 9_000 + "1"))  # too deep to be parsed
def test_an_npy_file_is_read_or_refused(content: bytes) -> None:
    read_all(".npy", content)
