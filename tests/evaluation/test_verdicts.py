from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spliter_experiments.evaluation import FIGURES, load_scenario
from spliter_experiments.evaluation.catalog import parse_scenario
from spliter_experiments.evaluation.tables import TREES, kernel_table, measured_table, paper_table
from spliter_experiments.evaluation.verdict import Finding, findings, published
from spliter_experiments.harness.summary import Summary, summarise, winsorized
from tests.evaluation.scenes import SMALL, pretended

VALUES = st.lists(st.floats(0.001, 1e6), min_size=1, max_size=40)


def bar(configuration: str, x: float, median: float, engine: str = "dask") -> Summary:
    phases = {"init": 0.5, "iterate": median}
    quartiles = (median * 0.9, median * 1.2)
    return Summary(engine, configuration, x, int(x), 5, median, *quartiles, phases, 10, 0)


@given(VALUES)
def test_winsorized_values_are_values_and_never_larger(values: list[float]) -> None:
    found = winsorized(values).tolist()
    assert set(found) <= set(values)
    assert all(new <= old for new, old in zip(found, sorted(values), strict=True))


def test_few_runs_are_not_winsorized() -> None:
    assert winsorized([1, 2, 3, 100]).tolist() == [1, 2, 3, 100]
    assert winsorized([1, 2, 3, 4, 100]).tolist() == [1, 2, 3, 4, 4]


def test_runs_are_summed_up_by_place_and_configuration(tmp_path: Path) -> None:
    records = pretended(tmp_path).records()
    bars = summarise(records, parse_scenario(SMALL, "small").configurations)
    assert [(bar.x, bar.configuration, bar.runs) for bar in bars] == [
        (x, name, 2) for x in (1.0, 2.0) for name in ("baseline", "rechunk", "spliter")
    ]
    assert [bar.median for bar in bars] == [2, 4, 1, 4, 4, 1]
    assert [bar.phases.get("split") for bar in bars] == [None, None, 0.25] * 2


def verdicts(bars: Sequence[Summary]) -> list[Finding]:
    return findings(parse_scenario(SMALL, "small"), bars)


def test_claims_are_checked_here_and_on_the_papers_numbers() -> None:
    bars = [
        bar("baseline", 1, 2),
        bar("spliter", 1, 1),
        bar("baseline", 2, 4),
        bar("spliter", 2, 2),
    ]
    growth, ratio, worst = verdicts(bars)
    assert (growth.here, growth.paper, growth.holds) == (2, 4, True)
    assert (ratio.here, ratio.paper, ratio.holds) == (2, 8, False)
    assert (worst.here, worst.paper, worst.holds) == (0.5, 0.5, False)
    assert growth.sentence == (
        "Holds on dask: one task per block gets slower (2.00 times, at least 1.5 asked, 4.00 times "
        "in the paper)."
    )
    assert ratio.sentence.startswith("Does not hold on dask: ")


def test_what_was_not_run_cannot_be_told() -> None:
    growth, ratio, _ = verdicts([bar("baseline", 1, 2)])
    assert (growth.holds, ratio.holds) == (None, None)
    assert ratio.sentence.startswith("Cannot be told on dask: ")


def test_dataclay_is_put_beside_what_the_paper_has_of_it() -> None:
    growth, _, _ = verdicts([bar("baseline", 1, 2, "dataclay"), bar("baseline", 2, 9, "dataclay")])
    assert (growth.here, growth.paper) == (4.5, None)


def test_engines_that_the_paper_has_not() -> None:
    growth, _, _ = verdicts([bar("baseline", 1, 2, "ray"), bar("baseline", 2, 9, "ray")])
    assert (growth.here, growth.paper) == (4.5, None)


@pytest.mark.parametrize("figure", FIGURES)
def test_the_papers_claims_hold_on_the_papers_numbers(figure: str) -> None:
    """What is asked of a run is what the paper's own numbers pass."""
    scenario = load_scenario(figure)
    for series in "dask", "process":
        bars = [
            bar(configuration, x, seconds, series)
            for configuration, found in published(scenario.paper, series).items()
            for x, seconds in found.items()
        ]
        found = findings(scenario, bars)
        assert len(found) == (len(scenario.claims) if bars else 0)
        for finding in found:
            assert finding.here == finding.paper
            assert finding.holds is True, finding.sentence


def test_excess_growth_is_growth_over_growth() -> None:
    text = SMALL.replace('measure = "worst-ratio"', 'measure = "excess-growth"')
    bars = [
        bar("baseline", 1, 1),
        bar("spliter", 1, 1),
        bar("baseline", 2, 2),
        bar("spliter", 2, 6),
    ]
    last = findings(parse_scenario(text, "small"), bars)[-1]
    assert last.here == 3


def test_table_1_from_the_papers_kernels_is_the_papers_table_1() -> None:
    scenario = load_scenario("table1")
    bars = [
        replace(bar(name, x, seconds, "process"), blocks=round(x / 500_000))
        for name, found in published(scenario.paper, "process").items()
        for x, seconds in found.items()
    ]
    grid = kernel_table(bars)
    assert grid is not None
    lines = {(int(row[0]), int(row[1])): row for row in grid.rows}
    assert set(lines) == set(TREES)
    # Build, look up and both, and the share of building, as printed in the paper.
    assert [float(cell) for cell in lines[6, 1][5:7]] == pytest.approx([26.8, 27.4], abs=0.1)
    assert [float(cell) for cell in lines[6, 6][5:7]] == pytest.approx([6.28, 11.7], abs=0.1)
    assert float(lines[6, 6][7].rstrip(" %")) == pytest.approx(46.2, abs=0.2)
    assert float(lines[4, 2][4].replace(",", "")) == pytest.approx(245.5, abs=1)


def test_table_1_needs_all_kernels() -> None:
    assert kernel_table([bar("fit", 1, 1), bar("kneighbors", 1, 1)]) is None


def test_tables_have_as_many_cells_as_headings(tmp_path: Path) -> None:
    scenario = parse_scenario(SMALL, "small")
    bars = summarise(pretended(tmp_path).records(), scenario.configurations)
    paper = paper_table(scenario)
    assert paper is not None
    for grid in measured_table(scenario, bars), paper:
        assert all(len(row) == len(grid.headings) for row in grid.rows)
    assert paper.rows[0] == ("Dask", "baseline", "2.00 (2.00x)", "8.00 (8.00x)")
