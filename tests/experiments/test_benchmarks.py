"""Small benchmarks print tables whose first way is the base, and check results if they can."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("distributed")

from benchmarks import kernels, measure, rows, schedules
from benchmarks.measure import Place
from spliter_experiments.harness.errors import WaysDisagreeError
from spliter_experiments.harness.runner import Answer


def test_the_first_way_is_the_base(capsys: pytest.CaptureFixture[str]) -> None:
    def two(seconds: float = 2.0) -> Iterator[Place | str]:
        ways = {
            "one": lambda: Answer(None, seconds=1.0),
            "b": lambda: Answer(None, seconds=seconds),
        }
        yield Place("here", ways)
        yield Place("there", ways)
        yield "A remark."

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "BENCHMARKS", {"two": two})
        measure.main(["two", "--rounds", "2", "--seconds", "4"])
    assert capsys.readouterr().out.splitlines() == [
        "|  | one, s | b |",
        "| --- | --- | --- |",
        "| here | 1±0 | 4±0 |",
        "| there | 1±0 | 4±0 |",
        "",
        "A remark.",
    ]


def test_results_that_differ_are_reported() -> None:
    with pytest.raises(WaysDisagreeError):
        Place("", {"one": lambda: 1, "other": lambda: 2}, same=int.__eq__).runs(1)


def test_columns_are_those_of_numpy() -> None:
    assert [len(place.runs(1)) for place in rows.columns(blocks=4, rows=5)] == [3]


def test_counting_is_measured() -> None:
    (grid,) = schedules.schedules_counters(rounds=1, blocks=10)
    assert len(grid.rows) == 1


def test_blocks_of_any_kind_are_processed() -> None:
    for name, work in schedules.WORK.items():
        if name == "label":
            pytest.importorskip("skimage")
        assert work(1, blocks=4, ms=0.001) >= 0


def test_passes_over_blocks_are_compared() -> None:
    (grid,) = kernels.materialize(rounds=1, rows=100, per_block=(50,))
    assert [row[0] for row in grid.rows] == list(kernels.PASSES)
