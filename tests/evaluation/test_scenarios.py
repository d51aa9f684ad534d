from __future__ import annotations

import pytest

from spliter_experiments.evaluation.catalog import (
    FIGURES,
    figure_name,
    load_scenario,
    parse_scenario,
    read_scenario,
)
from spliter_experiments.harness.errors import ScenarioError
from tests.evaluation.scenes import SMALL


def line_of(text: str, start: str) -> int:
    return 1 + next(n for n, line in enumerate(text.splitlines()) if line.startswith(start))


@pytest.mark.parametrize("figure", FIGURES)
def test_every_figure_has_a_scenario_in_both_sizes(figure: str) -> None:
    scenario = load_scenario(figure)
    assert scenario.figure == figure
    assert set(scenario.sizes) == {"full", "laptop"}
    assert scenario.paper.x
    assert scenario.claims


@pytest.mark.parametrize("figure", FIGURES)
def test_laptop_size_keeps_the_shape(figure: str) -> None:
    scenario = load_scenario(figure)
    full, laptop = scenario.sizes["full"], scenario.sizes["laptop"]
    assert laptop.blocks_per_core == full.blocks_per_core
    assert laptop.blocks_per_node == full.blocks_per_node
    assert laptop.chosen


@pytest.mark.parametrize("figure", ["20", "21"])
def test_queries_are_blocked_as_in_the_paper(figure: str) -> None:
    sizes = load_scenario(figure).sizes
    full = sizes["full"]
    assert (full.queries_per_node, full.query_blocks_per_node) == (24 * 500_000, 24)
    assert sizes["laptop"].query_blocks_per_node == full.query_blocks_per_node


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("query_blocks_per_node = 24\n", "", "query_blocks_per_node goes with the app knn on a"),
        ("queries_per_node = 24000", "queries_per_node = 23", "23 queries per node are not 24"),
        ('app = "knn"', 'app = "csvm"', "goes with the app knn"),
    ],
)
def test_mistakes_about_queries(old: str, new: str, what: str) -> None:
    text, _ = read_scenario("20")
    assert old in text
    text = text.replace(old, new).replace(
        "neighbors = 5", "iterations = 5" if "csvm" in new else "neighbors = 5"
    )
    with pytest.raises(ScenarioError, match=what):
        parse_scenario(text, "mine.toml")


@pytest.mark.parametrize("figure", ["15", "16", "17"])
def test_that_rechunking_wins_in_cascade_svm_is_a_finding(figure: str) -> None:
    (claim,) = [one for one in load_scenario(figure).claims if one.against == "rechunk"]
    assert (claim.of, claim.measure, claim.at_most) == ("spliter", "ratio", None)
    assert "rechunking first is faster than SplIter" in claim.says


@pytest.mark.parametrize("figure", FIGURES)
def test_the_papers_points_are_on_the_axis_of_the_full_size(figure: str) -> None:
    scenario = load_scenario(figure)
    size = scenario.sizes["full"]
    axis = {
        "nodes": size.nodes,
        "blocks_per_core": size.blocks_per_core,
        "blocks_per_node": size.blocks_per_node,
        "rows": tuple(size.rows(cut) for cut in size.cuts()),
    }[scenario.x]
    assert scenario.paper.x == axis


def test_names_of_figures() -> None:
    assert figure_name("fig. 12") == "12"
    assert figure_name("FIGURE_20") == "20"


@pytest.mark.parametrize("name", ["22", "8", "", "histogram", "table2"])
def test_unknown_figure_names_those_there_are(name: str) -> None:
    with pytest.raises(ScenarioError, match=r"no figure .*take one of 9, 10, .*table1"):
        load_scenario(name)


def test_missing_file() -> None:
    with pytest.raises(ScenarioError, match=r"cannot read the scenario nowhere/at.all.toml"):
        load_scenario("nowhere/at.all.toml")


@pytest.mark.parametrize(
    ("right", "wrong", "what"),
    [
        ("bins = 3", "bins = -3", "parameters.bins: Input should be greater than 0, got -3"),
        ("bins = 3", "cells = 3", "parameters.cells: Extra inputs"),
        ("bins = 3", "", "parameters.bins: Field required"),
        ('app = "histogram"', 'app = "hist"', "parameters: "),
        ("nodes = [1, 2]", "nodes = []", "sizes.laptop.nodes: "),
        ("nodes = [1, 2]", "nodes = [2, 2]", "sizes.laptop.nodes: each value may be there once"),
        ('"rechunk", "spliter"]', '"rechunk", "rechunk"]', "configurations: each value may be"),
        ('against = "spliter"', 'against = "fit"', "a claim is about fit, which is no"),
        ("rows_per_block = 50", "", "sizes.laptop: give rows_per_block or rows_per_node"),
        ("[sizes.laptop]", "[sizes.huge]", "sizes.huge"),
        ("schema_version = 1", "schema_version = 2", "schema_version: Input should be 1"),
        ("dask.rechunk = [3, 6]", "dask.rechunk = [3]", "paper: rechunk has 1 values for 2 of x"),
        ("at_least = 3", 'at_least = "x"', "claims.1.at_least: "),
    ],
)
def test_mistakes_are_told_with_their_entry(right: str, wrong: str, what: str) -> None:
    text = SMALL.replace(right, wrong, 1)
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text, "mine.toml")
    said = str(caught.value)
    assert "mine.toml is not a scenario" in said
    assert what in said


def test_all_mistakes_are_told_at_once() -> None:
    text = SMALL.replace("bins = 3", "bins = 0").replace("x = [1, 2]", "x = [0, 2]")
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text, "mine.toml")
    assert len(str(caught.value).splitlines()) == 3


def test_what_is_not_toml_is_told_with_its_line() -> None:
    text = SMALL.replace("bins = 3", "bins = = 3")
    with pytest.raises(ScenarioError, match=rf"not TOML: .*line {line_of(text, 'bins')}"):
        parse_scenario(text, "mine.toml")
