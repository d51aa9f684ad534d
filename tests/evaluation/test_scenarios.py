from __future__ import annotations

import tomllib

import pytest

from spliter_experiments.evaluation._toml_lines import lines_of, nearest_line
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
    assert scenario.paper.points
    assert scenario.claims


@pytest.mark.parametrize("figure", FIGURES)
def test_laptop_size_keeps_the_shape(figure: str) -> None:
    scenario = load_scenario(figure)
    full, laptop = scenario.sizes["full"], scenario.sizes["laptop"]
    assert laptop.blocks_per_core == full.blocks_per_core
    assert laptop.blocks_per_node == full.blocks_per_node
    assert laptop.chosen


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
    assert [point.x for point in scenario.paper.points] == list(axis)


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
    ("right", "wrong", "where", "what"),
    [
        ("bins = 3", "bins = -3", "bins", "parameters.bins: Input should be greater than 0"),
        ("bins = 3", "cells = 3", "cells", "parameters.cells: Extra inputs"),
        ("bins = 3", "", "[parameters]", "parameters.bins: Field required"),
        ('app = "histogram"', 'app = "hist"', "[parameters]", "parameters: "),
        ("nodes = [1, 2]", "nodes = []", "nodes", "sizes.laptop.nodes: "),
        ('"1 GB"', '"lots"', "memory_per_node", "not a number of bytes: 'lots'"),
        ("rows_per_block = 50", "", "[sizes.laptop]", "rows_per_block or rows_per_node"),
        ("[sizes.laptop]", "[sizes.huge]", "[sizes.huge]", "sizes.huge"),
        ("schema_version = 1", "schema_version = 2", "schema_version", "Input should be 1"),
        ("at_least = 3", 'at_least = "x"', 'at_least = "x"', "claims.1.at_least: "),
    ],
)
def test_mistakes_are_told_with_their_line(right: str, wrong: str, where: str, what: str) -> None:
    text = SMALL.replace(right, wrong, 1)
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text, "mine.toml")
    said = str(caught.value)
    assert "mine.toml is not a scenario" in said
    told = next(line for line in said.splitlines() if what in line)
    assert f"line {line_of(text, where)}: " in told


def test_all_mistakes_are_told_at_once() -> None:
    text = SMALL.replace("bins = 3", "bins = 0").replace("x = 2", "x = 0")
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text, "mine.toml")
    assert str(caught.value).count("line ") == 2


def test_what_is_not_toml_is_told_with_its_line() -> None:
    text = SMALL.replace("bins = 3", "bins = = 3")
    with pytest.raises(ScenarioError, match=rf"not TOML: .*line {line_of(text, 'bins')}"):
        parse_scenario(text, "mine.toml")


def test_lines_past_long_strings_and_arrays() -> None:
    text = (
        'a = """\n[no]\nb = 1\n"""\nc = [\n  1, # ]\n  "]",\n]\n[t.u]\n"d e" = {x = 1}\nf.g = 1\n'
    )
    assert tomllib.loads(text)
    lines = lines_of(text)
    assert lines == {
        ("a",): 1,
        ("c",): 5,
        ("t", "u"): 9,
        ("t", "u", "d e"): 10,
        ("t", "u", "f", "g"): 11,
    }
    assert nearest_line(lines, ("t", "u", "d e", "x")) == 10
    assert nearest_line(lines, ("nothing",)) is None


def test_lines_of_tables_in_arrays_of_tables() -> None:
    text = "[[a]]\n[a.b]\nc = 1\n[[a]]\n[[a.d]]\ne = 2\n[[a.d]]\ne = 3\n"
    lines = lines_of(text)
    assert lines["a", 0, "b", "c"] == 3
    assert (lines["a", 1, "d", 0, "e"], lines["a", 1, "d", 1, "e"]) == (6, 8)


@pytest.mark.parametrize("figure", FIGURES)
def test_every_key_of_a_shipped_scenario_has_a_line(figure: str) -> None:
    text, _ = read_scenario(figure)
    lines, split = lines_of(text), text.splitlines()
    content = tomllib.loads(text)
    for number, point in enumerate(content["paper"]["points"]):
        assert split[lines["paper", "points", number, "x"] - 1] == f"x = {point['x']}"
