"""The chaos runner sees wrong answers, hangs and untyped errors of an engine."""

from __future__ import annotations

import dataclasses
import threading

import numpy as np
import pytest

from spliter import BlockLostError
from tests.chaos.__main__ import summary
from tests.chaos.cases import APPS, KINDS, LINK_KINDS, SPAN, Case, Fault, draw_case
from tests.chaos.programs import PROGRAMS, Answer, Array, Collections, HistogramProgram
from tests.chaos.runner import NoTargetError, Outcome, cut, run_case


class FakeCluster:
    """The local engine, on which a fault adds an offset to the data."""

    engine_errors = (ZeroDivisionError,)

    def __init__(self, left: str = "", offset: float = 0, has_target: bool = True) -> None:
        self.blocks: list[Array] = []
        self.recovered: list[Fault] = []
        self.left = left
        self.offset = offset
        self.has_target = has_target

    def place(self, case: Case, arrays: tuple[Array, ...]) -> Collections:
        collections = tuple(cut(array, case) for array in arrays)
        self.blocks = collections[0]
        return collections

    def inject(self, fault: Fault) -> str:
        if not self.has_target:
            raise NoTargetError("nobody")
        for block in self.blocks:
            block[...] += self.offset
        return "a block"

    def recover(self, fault: Fault) -> None:
        self.recovered.append(fault)

    def clean_up(self) -> str:
        return self.left

    def state(self) -> str:
        return ""

    def close(self, *, abandoned: bool = False) -> None:
        pass


def case(app: str = "histogram") -> Case:
    drawn = draw_case("dask", APPS.index(app))
    faults = (Fault("kill", at=0.01, target=0, seconds=0.02),)
    return dataclasses.replace(drawn, as_split=False, faults=faults)


@pytest.mark.parametrize("app", APPS)
def test_right_answers(app: str) -> None:
    cluster = FakeCluster()
    run = run_case(case(app), cluster)
    assert run.outcome is Outcome.RIGHT, run.message
    assert run.is_good
    assert run.rounds >= 3, "a round follows the last fault, then the first is judged again"
    assert [(one.kind, one.done) for one in run.injected] == [("kill", True)]
    assert len(cluster.recovered) == 1


@pytest.mark.parametrize("app", ["histogram", "k-means", "neighbours"])
def test_wrong_answers(app: str) -> None:
    run = run_case(case(app), FakeCluster(offset=0.5))
    assert run.outcome is Outcome.WRONG
    assert not run.is_good
    assert f"--seed {run.case.seed}" in str(run)
    assert "kill: a block" in str(run)
    assert summary([run]) == (
        "1 runs, 1 faults (1 kill): 1 WRONG WrongAnswerError; 0 left something behind"
    )


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
    run = run_case(case(), FakeCluster())
    assert run.outcome is outcome
    assert run.error == type(error).__name__
    # The traceback is kept where somebody will want it.
    assert ("Traceback" in run.message) == (outcome is Outcome.UNTYPED)


def test_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()

    def wait(*_: object) -> Answer:
        release.wait(60)
        raise BlockLostError("too late")

    monkeypatch.setattr(HistogramProgram, "run", wait)
    run = run_case(case(), FakeCluster(), hang_seconds=0.5)
    release.set()
    assert run.outcome is Outcome.HANG
    assert "chaos-program" in run.message


def test_what_is_left_behind() -> None:
    run = run_case(case(), FakeCluster(left="3 tasks"))
    assert run.outcome is Outcome.RIGHT
    assert not run.is_good
    assert "3 tasks" in str(run)


def test_faults_without_a_target() -> None:
    cluster = FakeCluster(has_target=False)
    run = run_case(case(), cluster)
    assert not run.injected[0].done
    assert not cluster.recovered


@pytest.mark.parametrize("app", APPS)
def test_oracle_refuses_what_is_a_little_wrong(app: str) -> None:
    program = PROGRAMS[app]
    arrays = program.data(np.random.default_rng(0), 200)
    right = program.expected(arrays)
    answer = dict(right)
    off = {name: value + 1e-3 for name, value in right.items()}
    if app == "cascade-svm":
        answer |= {"support": np.arange(3), "vectors": arrays[0][:3]}
        off = {"objective": right["objective"] * 1.01, "predicted": 1 - right["predicted"]}
        off["vectors"] = arrays[0][1:4]
    assert not program.difference(answer, right, arrays)
    for name, value in off.items():
        assert program.difference(answer | {name: value}, right, arrays), name


def test_cases() -> None:
    drawn = [draw_case("dask", seed) for seed in range(400)]
    assert {fault.kind for case in drawn for fault in case.faults} == set(KINDS["dask"])
    for case in drawn:
        assert case == draw_case("dask", case.seed)
        assert len(case.rows) == len(case.places) == len(case.further_places)
        assert [fault.at for fault in case.faults] == sorted(fault.at for fault in case.faults)
        assert all(0 <= fault.at <= SPAN for fault in case.faults)
        assert not (case.nannies and {it.kind for it in case.faults} & set(LINK_KINDS))
