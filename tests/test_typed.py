"""Types as a user's checker sees them: a program in strict mode, and a public API without gaps."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SOURCE_ROOTS
from tests.running import run_command

pytestmark = pytest.mark.thorough

CHECKER = "basedpyright"
"""Pyright with the Node it needs in its own wheel: nothing is fetched when it starts."""

needs_checker = pytest.mark.skipif(
    importlib.util.find_spec(CHECKER) is None, reason=f"{CHECKER} is not installed"
)

PROGRAM = """
from __future__ import annotations

import operator
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from spliter import (
    BlockLostError,
    Partition,
    SplIterError,
    Split,
    as_completed,
    gather,
    progress,
    reduce,
    split,
    task,
)

Block = npt.NDArray[np.float64]


@task
def total(partition: Partition, scale: float = 1.0) -> float:
    return sum(float(block.sum()) for block in partition) * scale


def lengths(parts: Split) -> Iterator[int]:
    for partition in parts:
        indexes: list[tuple[int, ...]] = partition.get_indexes()
        rows: npt.NDArray[np.int64] = partition.get_item_indexes()
        yield len(indexes) + len(rows)


blocks: list[Block] = [np.ones(3), np.ones(2)]
with split(blocks, partitions_per_location=2, materialize="auto") as parts:
    first: Partition = parts[0]
    rest: list[Partition] = parts[1:]
    print(first.location, first.nbytes, first.shape, len(rest), parts.moved.nbytes)
    print(sum(lengths(parts)))
    partials = [total(partition, scale=2.0) for partition in parts]
    for future in as_completed(partials, timeout=10):
        print(future.result())
    print(gather(progress(parts.map(len), disable=True)))
    try:
        print(reduce(operator.add, partials).result())
    except BlockLostError as lost:
        print(lost.blocks)
    except SplIterError as error:
        print(error)
"""

TASKS = """
from spliter import Partition, split, task

@task
def plain(partition: Partition, scale: float = 1.5) -> float:
    return scale * len(partition)

@task()
def called(partition: Partition, *, scale: int) -> int:
    return scale * len(partition)

(partition,) = parts = split([[1]])
reveal_type(plain)
reveal_type(called)
print(plain(partition, 2.0).result(), called(partition, scale=plain(partition)).result())
plain(partition, sclae=2.0)
plain(partition, scale="two")
plain(parts)
called(partition)
"""


def check(folder: Path, source: str, mode: str = "strict") -> dict[str, Any]:
    (folder / "program.py").write_text(source, encoding="utf-8")
    settings = {
        "typeCheckingMode": mode,
        "include": ["program.py"],
        "extraPaths": [str(root) for root in SOURCE_ROOTS],
        "pythonVersion": "3.11",
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    return run(folder, "--outputjson")


def run(folder: Path, *arguments: str) -> dict[str, Any]:
    done = run_command(
        [sys.executable, "-m", CHECKER, "--pythonpath", sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, SOURCE_ROOTS))},
    )
    assert done.stdout.lstrip().startswith("{"), done.stdout + done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@needs_checker
def test_a_typed_program_is_right_in_strict_mode(tmp_path: Path) -> None:
    found = check(tmp_path, PROGRAM)
    assert found["summary"]["filesAnalyzed"] == 1
    assert [one["message"] for one in found["generalDiagnostics"]] == []


@needs_checker
def test_a_task_has_the_arguments_of_its_function(tmp_path: Path) -> None:
    found = check(tmp_path, TASKS)["generalDiagnostics"]
    shown = [one["message"] for one in found if one["severity"] == "information"]
    assert shown == [
        'Type of "plain" is "(partition: Partition, scale: float = 1.5) -> Any"',
        'Type of "called" is "(partition: Partition, *, scale: int) -> Any"',
    ]
    mistakes = [one for one in found if one["severity"] == "error"]
    first = TASKS.splitlines().index("plain(partition, sclae=2.0)")
    assert [one["range"]["start"]["line"] - first for one in mistakes] == [0, 1, 2, 3]


@needs_checker
def test_public_interface_is_completely_typed(tmp_path: Path) -> None:
    (tmp_path / "pyrightconfig.json").write_text(
        json.dumps({"extraPaths": [str(SOURCE_ROOTS[0])]}), encoding="utf-8"
    )
    found = run(tmp_path, "--verifytypes", "spliter", "--ignoreexternal", "--outputjson")
    completeness = found["typeCompleteness"]
    gaps = [
        (symbol["name"], symbol["diagnostics"])
        for symbol in completeness["symbols"]
        if symbol["isExported"] and not symbol["isTypeKnown"]
    ]
    assert gaps == []
    assert completeness["completenessScore"] == 1
    assert completeness["exportedSymbolCounts"]["withKnownType"] > 50
