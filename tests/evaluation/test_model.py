from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from distributed import Client
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from spliter_experiments.cli import app
from spliter_experiments.evaluation import load_scenario, plan_runs
from spliter_experiments.evaluation.calibrate import (
    bandwidth_of,
    measure_costs,
    scheduler_costs,
    sleeping_cluster,
    spliter_costs,
)
from spliter_experiments.evaluation.calibrate_kernels import kernel_costs, neighbor_costs
from spliter_experiments.evaluation.catalog import FIGURES
from spliter_experiments.evaluation.costs import (
    Costs,
    Curve,
    NeighborCosts,
    pass_seconds,
)
from spliter_experiments.evaluation.model import most_blocks_per_core, predict
from spliter_experiments.evaluation.plan import PlannedRun
from spliter_experiments.evaluation.simulate import (
    LABEL,
    block_sizes_table,
    costs_table,
    simulate,
    write_simulation,
)
from spliter_experiments.harness.errors import PlanError
from tests.evaluation.scenes import written

COSTS = Costs(
    round_trip=0.01,
    task=0.001,
    telling=0.0002,
    bandwidth=1e9,
    per_block=1e-5,
    per_row=1e-7,
    split_block=2e-6,
    pass_block=2e-6,
)


def planned(figure: str, configuration: str, nodes: int = 8, **other: int) -> PlannedRun:
    runs = plan_runs(load_scenario(figure), "full", configurations=[configuration], nodes=[nodes])
    return replace(runs[0], **other)  # type: ignore[arg-type]


def seconds(figure: str, configuration: str, nodes: int = 8, costs: Costs = COSTS) -> float:
    return predict(load_scenario(figure), planned(figure, configuration, nodes), costs)


@given(st.integers(1, 5000), st.integers(1, 500), st.floats(0, 1))
def test_a_pass_takes_no_less_than_its_work_and_its_tasks(
    tasks: int, cores: int, work: float
) -> None:
    found = pass_seconds(COSTS, tasks, cores, work)
    assert found >= tasks * work / cores
    assert found >= tasks * COSTS.task
    assert found <= COSTS.round_trip + tasks * COSTS.task + -(-tasks // cores) * work + 1e-9


def test_one_task_per_block_grows_with_the_nodes_and_spliter_does_not() -> None:
    growth = {
        name: seconds("9", name, 16) / seconds("9", name, 1) for name in ("baseline", "spliter")
    }
    assert growth["baseline"] > 5 * growth["spliter"]


def test_on_balanced_data_all_do_the_same() -> None:
    assert seconds("10", "rechunk") == seconds("10", "baseline")
    assert seconds("10", "spliter") == pytest.approx(seconds("10", "baseline"), rel=0.05)


def test_a_rechunk_takes_the_link_its_bytes() -> None:
    slow = seconds("9", "rechunk", costs=replace(COSTS, bandwidth=1e8))
    run = planned("9", "rechunk")
    moved = run.rows * 5 * 8 / 8 * 7 / 8
    assert slow - seconds("9", "rechunk") == pytest.approx(moved * (1e-8 - 1e-9))
    # On one node nothing has to move.
    alone = [seconds("9", "rechunk", 1, replace(COSTS, bandwidth=rate)) for rate in (1e8, 1e9)]
    assert alone[0] == alone[1]


def test_every_iteration_is_a_pass() -> None:
    per_pass = seconds("12", "baseline") / 11
    twice = load_scenario("12")
    parameters = twice.parameters.model_copy(update={"iterations": 21})
    longer = predict(
        twice.model_copy(update={"parameters": parameters}), planned("12", "baseline"), COSTS
    )
    assert longer == pytest.approx(22 * per_pass)


def test_spliter_gets_away_with_smaller_blocks() -> None:
    scenario = load_scenario("11")
    found = {}
    for name in "baseline", "spliter":
        most = most_blocks_per_core(scenario, planned("11", name), COSTS, slack=0.25)
        assert most is not None
        blocks, rows = most
        run = planned("11", name)
        allowed = 1.25 * predict(scenario, replace(run, blocks=run.cores), COSTS)
        assert predict(scenario, replace(run, blocks=run.cores * blocks), COSTS) <= allowed
        assert predict(scenario, replace(run, blocks=run.cores * blocks * 2), COSTS) > allowed
        assert rows == run.rows // (run.cores * blocks)
        found[name] = blocks
    assert found["spliter"] > found["baseline"]


def test_no_block_size_is_small_enough_to_pay_for_itself() -> None:
    costly = replace(COSTS, task=10.0)
    assert (
        most_blocks_per_core(load_scenario("11"), planned("11", "baseline"), costly, 0.25) is None
    )


NEIGHBORS = NeighborCosts(
    build=Curve((1e3, 1e6), (1e-3, 2.0)), ask=Curve((1e3, 1e6), (1e-5, 2e-5)), merge=1e-7
)


def test_a_tree_per_block_costs_what_all_queries_cost_in_every_tree() -> None:
    costs = replace(COSTS, neighbors=NEIGHBORS)
    growth = {
        name: seconds("20", name, 16, costs) / seconds("20", name, 1, costs)
        for name in ("baseline", "spliter")
    }
    # Of 6 blocks per node there are 3 at each of 2 workers: trees, and so work, are a third.
    assert seconds("20", "baseline", 16, costs) / seconds("20", "spliter", 16, costs) > 1.5
    assert growth["baseline"] > 1
    dearer = replace(COSTS, neighbors=replace(NEIGHBORS, merge=1e-6))
    assert seconds("20", "baseline", 4, dearer) > seconds("20", "baseline", 4, costs)


def test_costs_between_and_beyond_what_was_measured() -> None:
    squares = Curve((1.0, 2.0, 4.0), (1.0, 4.0, 16.0))
    for size in (1, 1.5, 3, 4, 100):
        assert squares.at(size) == pytest.approx(size**2)


@pytest.mark.parametrize(
    ("figure", "message"), [("18", "about one process"), ("15", "no model of Cascade SVM")]
)
def test_what_there_is_no_model_of(figure: str, message: str) -> None:
    scenario = load_scenario(figure)
    with pytest.raises(PlanError, match=message):
        predict(scenario, plan_runs(scenario, "full")[0], COSTS)
    with pytest.raises(PlanError, match=message):
        measure_costs(scenario, [100])


def test_what_has_not_been_measured() -> None:
    scenario = load_scenario("20")
    with pytest.raises(PlanError, match="not been measured"):
        predict(scenario, plan_runs(scenario, "full")[0], COSTS)
    with pytest.raises(PlanError, match="does not go by rows"):
        kernel_costs(scenario, [100])


def test_figures_with_a_model_have_one_in_full_and_block_sizes() -> None:
    costs = replace(COSTS, neighbors=NEIGHBORS)
    for figure in FIGURES:
        scenario = load_scenario(figure)
        if scenario.kind == "kernel" or scenario.parameters.app == "csvm":
            continue
        found = simulate(scenario, "full", plan_runs(scenario, "full"), costs)
        assert min(found.predicted) > 0
        assert block_sizes_table(found).row_count > 0
        assert costs_table(costs).row_count > 6


def test_kernels_of_trees_are_measured() -> None:
    found = neighbor_costs(load_scenario("20"), [2000, 8000])
    assert list(found.build.sizes) == [2000, 4000, 8000]
    assert min(*found.build.values, *found.ask.values, found.merge) > 0


def test_predictions_are_labelled_everywhere(tmp_path: Path) -> None:
    scenario = load_scenario("9")
    found = simulate(scenario, "full", plan_runs(scenario, "full"), COSTS)
    assert len(found.predicted) == 15
    files = write_simulation(found, tmp_path)
    assert all("predicted" in file.parts for file in files)
    content = json.loads(files[-1].read_text())
    assert content["label"] == LABEL
    assert len(content["predicted_seconds"]) == 15
    svg = files[1].read_text()
    assert LABEL in svg


@pytest.fixture(scope="module")
def sleeping() -> Iterator[Client]:
    with sleeping_cluster(2) as client:
        yield client


def test_costs_are_measured(sleeping: Client) -> None:
    trip, task, telling = scheduler_costs(sleeping)
    assert trip > 0
    assert 0 <= telling <= task
    assert bandwidth_of(sleeping) > 1e6
    assert max(spliter_costs(sleeping)) < 1


def test_a_kernel_is_measured_by_rows() -> None:
    per_block, per_row = kernel_costs(load_scenario("9"), [50_000])
    assert per_block > 0
    assert per_row > 0


def test_simulate_command(tmp_path: Path) -> None:
    words = ["experiment", "simulate", written(tmp_path), "--size", "laptop"]
    result = CliRunner().invoke(
        app, [*words, "--results", str(tmp_path / "out"), "--bandwidth", "1 GB"]
    )
    assert result.exit_code == 0, result.output
    said = " ".join(result.output.split())
    assert LABEL in said
    assert "1.00 GB/s" in said
    assert (tmp_path / "out/predicted/laptop/fig09.png").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["18"], "is about one process"),
        (["9", "--bandwidth", "fast"], "not a number of bytes"),
    ],
)
def test_what_cannot_be_simulated(words: list[str], message: str, tmp_path: Path) -> None:
    given = ["experiment", "simulate", *words, "--results", str(tmp_path)]
    result = CliRunner().invoke(app, given)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
