"""Whether the chaos suite would see what it is there to see: on an engine that breaks promises."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from spliter import BlockLostError
from spliter_experiments.chaos.arena import Arena, NothingToStrikeError
from spliter_experiments.chaos.campaign import (
    command_of,
    error_table,
    outcome_table,
    read_records,
    write_records,
)
from spliter_experiments.chaos.cases import APPS, KINDS, LINK_KINDS, SPAN, Case, Fault, draw_case
from spliter_experiments.chaos.cli import told_failure
from spliter_experiments.chaos.outcomes import Outcome, Record, Struck
from spliter_experiments.chaos.programs import (
    PROGRAMS,
    Answer,
    Array,
    Collections,
    HistogramProgram,
)
from spliter_experiments.chaos.runner import run_case
from spliter_experiments.harness.errors import ResultsError


class FakeArena(Arena):
    """The local engine, on which faults do to the data whatever a test says."""

    engine_errors = (ZeroDivisionError,)

    def __init__(self, left: str = "") -> None:
        self.blocks: list[Array] = []
        self.struck: list[Fault] = []
        self.relented: list[Fault] = []
        self.left = left

    def begin(self, case: Case, arrays: tuple[Array, ...]) -> Collections:
        cuts = np.cumsum(case.rows)[:-1].tolist()
        collections = tuple([block.copy() for block in np.split(one, cuts)] for one in arrays)
        self.blocks = collections[0]
        return collections

    def strike(self, fault: Fault) -> str:
        self.struck.append(fault)
        return "a block"

    def relent(self, fault: Fault) -> None:
        self.relented.append(fault)

    def end(self) -> str:
        return self.left

    def close(self, *, abandoned: bool = False) -> None:
        pass


class Spoiling(FakeArena):
    """A fault changes the data."""

    def strike(self, fault: Fault) -> str:
        for block in self.blocks:
            block[...] += 0.5
        return super().strike(fault)


def case(app: str = "histogram") -> Case:
    seed = next(seed for seed in range(100) if draw_case("dask", seed).app == app)
    faults = (Fault("kill", at=0.01, target=0, seconds=0.02),)
    return Case(**{**vars(draw_case("dask", seed)), "as_split": False, "faults": faults})


@pytest.mark.parametrize("app", APPS)
def test_right_answers(app: str) -> None:
    arena = FakeArena()
    record = run_case(case(app), arena)
    assert record.outcome is Outcome.RIGHT, record.message
    assert record.is_good
    assert record.rounds >= 2, "one round begins after the last fault is over"
    assert [one.kind for one in record.struck] == ["kill"]
    assert record.struck[0].done
    assert len(arena.struck) == len(arena.relented) == 1


@pytest.mark.parametrize("app", ["histogram", "k-means", "neighbours"])
def test_wrong_answers(app: str) -> None:
    record = run_case(case(app), Spoiling())
    assert record.outcome is Outcome.WRONG
    assert not record.is_good
    assert "--seed" in told_failure(record)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (BlockLostError("gone"), Outcome.TYPED),
        (ZeroDivisionError("of the engine"), Outcome.TYPED),
        (KeyError("what"), Outcome.UNTYPED),
    ],
)
def test_errors(error: Exception, outcome: Outcome, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Answer:
        raise error

    monkeypatch.setattr(HistogramProgram, "run", fail)
    record = run_case(case(), FakeArena())
    assert record.outcome is outcome
    assert record.error == type(error).__name__
    # The traceback is kept where somebody will want it.
    assert ("Traceback" in record.message) == (outcome is Outcome.UNTYPED)


def test_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()

    def wait(*_: object) -> Answer:
        release.wait(60)
        raise BlockLostError("too late")

    monkeypatch.setattr(HistogramProgram, "run", wait)
    record = run_case(case(), FakeArena(), hang_seconds=0.5)
    release.set()
    assert record.outcome is Outcome.HANG
    assert "chaos-program" in record.message


def test_what_is_left_behind() -> None:
    record = run_case(case(), FakeArena(left="3 tasks"))
    assert record.outcome is Outcome.RIGHT
    assert not record.is_good
    assert "3 tasks" in told_failure(record)


def test_faults_that_find_nobody() -> None:
    class Empty(FakeArena):
        def strike(self, fault: Fault) -> str:
            raise NothingToStrikeError("nobody")

    arena = Empty()
    record = run_case(case(), arena)
    assert not record.struck[0].done
    assert not arena.relented


@pytest.mark.parametrize("app", APPS)
def test_oracle_refuses_what_is_a_little_wrong(app: str) -> None:
    program = PROGRAMS[app]
    arrays = program.data(np.random.default_rng(0), 200)
    right = program.expected(arrays)
    answer = dict(right)
    if app == "cascade-svm":
        answer |= {"support": np.arange(3), "vectors": arrays[0][:3]}
        assert not program.difference(answer, right, arrays)
        off = {"objective": right["objective"] * 1.01, "predicted": 1 - right["predicted"]}
        off["vectors"] = arrays[0][1:4]
    else:
        assert not program.difference(answer, right, arrays)
        off = {name: value + 1e-3 for name, value in right.items()}
    for name, value in off.items():
        assert program.difference(answer | {name: value}, right, arrays), name


def test_cases() -> None:
    drawn = [draw_case("dask", seed) for seed in range(400)]
    assert {fault.kind for case in drawn for fault in case.faults} == set(KINDS["dask"])
    for case in drawn:
        assert case == draw_case("dask", case.seed)
        assert len(case.rows) == len(case.places) == len(case.further_places)
        assert 1 <= len(case.faults) <= 4
        assert [fault.at for fault in case.faults] == sorted(fault.at for fault in case.faults)
        assert all(0 <= fault.at <= SPAN for fault in case.faults)
        assert not (case.nannies and {it.kind for it in case.faults} & set(LINK_KINDS))


def records() -> list[Record]:
    right = Record({"seed": 4, "backend": "dask", "app": "histogram"}, Outcome.RIGHT)
    struck = (Struck("kill", 0.1, "a", True), Struck("kill", 0.2, "b", True))
    lost = Record(
        {"seed": 5, "backend": "dask", "app": "k-means"},
        Outcome.TYPED,
        "BlockLostError",
        struck=struck,
    )
    return [right, lost]


def test_tables() -> None:
    table = outcome_table(records(), "dask")
    rows = {name: cells for name, *cells in zip(*(it.cells for it in table.columns), strict=True)}
    assert rows["kill"] == ["2", "1", "0", "1", "0", "0", "0", "0"]
    assert "spill" not in rows
    assert rows["all"] == ["2", "2", "1", "1", "0", "0", "0", "0"]
    errors = error_table(records())
    assert [list(column.cells) for column in errors.columns][:2] == [["BlockLostError"], ["1"]]
    assert command_of(records()[1]) == "spliter chaos --backend dask --runs 1 --seed 5"


def test_file_of_records(tmp_path: Path) -> None:
    path = tmp_path / "chaos.jsonl"
    assert read_records(path) == []
    write_records(path, records())
    with path.open("a") as file:
        file.write('{"case": {"se')
    assert read_records(path) == records()
    path.write_text("nonsense\n")
    with pytest.raises(ResultsError, match="line 1"):
        read_records(path)
