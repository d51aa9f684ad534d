from __future__ import annotations

import dataclasses

import pytest

from spliter_experiments.evaluation import FIGURES, load_scenario, plan_digest, plan_runs
from spliter_experiments.evaluation.catalog import parse_scenario
from spliter_experiments.evaluation.plan import command_of, stands_of, visits_of
from spliter_experiments.evaluation.schema import SizeName
from spliter_experiments.harness.errors import PlanError
from tests.evaluation.scenes import SMALL

MEMORY = {"full": 96e9, "laptop": 2e9}
"""Bytes of a node of MareNostrum 4, and what a laptop has to spare."""


@pytest.mark.parametrize("figure", FIGURES)
@pytest.mark.parametrize("size", ["full", "laptop"])
def test_every_plan_fits_its_machine(figure: str, size: SizeName) -> None:
    scenario = load_scenario(figure)
    runs = plan_runs(scenario, size)
    assert len({run.id for run in runs}) == len(runs)
    for run in runs:
        assert 0 < run.memory_bytes <= MEMORY[size]
        assert run.estimated_seconds > 0
        assert run.rows >= run.blocks > 0
        assert run.cores == run.nodes * scenario.sizes[size].cores_per_node


def test_weak_scaling_has_the_same_work_per_core() -> None:
    runs = plan_runs(load_scenario("9"), "full")
    assert {run.rows // run.cores for run in runs} == {384_000 * 48}
    assert {run.blocks_per_core for run in runs} == {48}


def test_a_fragmentation_sweep_has_the_same_points_in_ever_more_blocks() -> None:
    runs = plan_runs(load_scenario("14"), "full")
    assert len({run.rows for run in runs}) == 1
    assert sorted({run.blocks_per_core for run in runs}) == [1, 4, 16, 48]
    # What the paper has at 48 blocks per core is what it has in weak scaling on 8 nodes.
    scaled = plan_runs(load_scenario("12"), "full", nodes=[8])
    assert {run.rows for run in scaled} == {run.rows for run in runs}


def test_full_size_is_estimated_by_the_papers_seconds() -> None:
    runs = plan_runs(load_scenario("9"), "full", repetitions=1)
    seconds = {(run.configuration, run.nodes): run.estimated_seconds for run in runs}
    assert seconds["baseline", 16] - seconds["spliter", 16] == pytest.approx(660 - 7.94)


def test_earlier_runs_are_the_better_estimate() -> None:
    scenario = load_scenario("9")
    runs = plan_runs(scenario, "laptop", measured=lambda run: 1000.0 * run.nodes)
    assert all(run.estimated_seconds > 1000 * run.nodes for run in runs)


def test_a_command_says_all_that_it_takes_to_do_the_run() -> None:
    run = plan_runs(load_scenario("9"), "laptop", repetitions=9)[-1]
    assert command_of([run], "out dir") == [
        *("spliter", "experiment", "run", "9", "--size", "laptop", "--backend", "dask"),
        *("--repetitions", "9", "--results", "out dir"),
        *("--only", "fig09-laptop-dask-spliter-n4-b48-r9"),
    ]


def test_one_command_is_of_one_scenario() -> None:
    runs = [plan_runs(load_scenario(figure), "laptop")[0] for figure in ("9", "10")]
    with pytest.raises(PlanError, match="one scenario"):
        command_of(runs, "out")


def test_kernels_need_no_engine() -> None:
    runs = plan_runs(load_scenario("18"), "laptop", engine="dataclay")
    assert {run.engine for run in runs} == {"process"}
    assert "--backend" not in command_of(runs[:1], "out")


def test_an_engine_runs_the_configurations_it_has() -> None:
    pytest.importorskip("dataclay", reason="dataClay is not installed")
    runs = plan_runs(load_scenario("9"), "laptop", engine="dataclay")
    assert {run.configuration for run in runs} == {"baseline", "spliter"}
    with pytest.raises(PlanError, match="dataclay has no rechunk"):
        plan_runs(load_scenario("9"), "laptop", engine="dataclay", configurations=["rechunk"])


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"configurations": ["fast"]}, "no configuration fast; take some of baseline"),
        ({"configurations": []}, "no configuration"),
        ({"nodes": [3]}, "not measured on 3 nodes; take some of 1, 2, 4"),
        ({"engine": "spark"}, "no backend 'spark'"),
    ],
)
def test_what_cannot_be_planned(chosen: dict[str, object], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        plan_runs(load_scenario("9"), "laptop", **chosen)  # type: ignore[arg-type]


def test_a_size_that_a_scenario_has_not() -> None:
    with pytest.raises(PlanError, match="no size 'full'; take one of laptop"):
        plan_runs(parse_scenario(SMALL, "small"), "full")


def test_runs_of_a_stand_differ_in_nothing_but_configuration_and_repetition() -> None:
    runs = plan_runs(load_scenario("11"), "laptop")
    stands = stands_of(runs)
    assert sum(map(len, stands.values())) == len(runs)
    for mine in stands.values():
        assert len({(run.nodes, run.blocks, run.rows, run.engine) for run in mine}) == 1


def test_every_visit_goes_through_all_stands() -> None:
    runs = plan_runs(load_scenario("11"), "laptop", repetitions=6)
    order = visits_of(runs, visits=3, seed=1)
    assert sorted(run.id for part in order for run in part) == sorted(run.id for run in runs)
    assert len(order) == 3 * 4
    for visit in range(3):
        parts = order[4 * visit : 4 * visit + 4]
        assert len({part[0].stand for part in parts}) == 4
        assert {run.repetition for part in parts for run in part} == {visit + 1, visit + 4}
    assert order == visits_of(runs, visits=3, seed=1)
    assert len({tuple(part[0].stand for part in order[n : n + 4]) for n in (0, 4, 8)}) > 1


def test_what_is_computed_decides_what_may_be_mixed() -> None:
    scenario = parse_scenario(SMALL, "small")
    digest = plan_digest(scenario, "laptop")
    same = parse_scenario(SMALL.replace("repetitions = 2", "repetitions = 9"), "small")
    other = parse_scenario(SMALL.replace("bins = 3", "bins = 4"), "small")
    assert plan_digest(same, "laptop") == digest
    assert plan_digest(other, "laptop") != digest


def test_runs_can_be_changed_by_nobody() -> None:
    run = plan_runs(load_scenario("9"), "laptop")[0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        run.nodes = 2  # type: ignore[misc]
