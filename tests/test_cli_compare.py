"""The comparisons of the spliter command: tables, records, data, labels."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("distributed")

from distributed import Client, LocalCluster

from spliter_experiments.compare import cli as compare_cli
from spliter_experiments.compare.engines import dask_engine
from spliter_experiments.compare.workloads import dask, kmeans
from spliter_experiments.compare.workloads.histogram import Histogram
from spliter_experiments.compare.workloads.site import Parts
from spliter_experiments.harness.console import Listener
from spliter_experiments.harness.runner import Answer
from tests import test_cli
from tests.experiments.staging import IRIS, iris_file
from tests.test_cli import SMALL, compare, records_in, run, settings_in

pytestmark = [pytest.mark.thorough, pytest.mark.backend("dask")]

cluster = test_cli.cluster


def test_rounds_before_an_interrupt_are_kept(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done = itertools.count(1)

    def step(what: str, runs: int) -> None:
        if runs and next(done) == 7:  # the first way of the third round that counts
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def progress() -> Iterator[Listener]:
        yield Listener(step=step)

    monkeypatch.setattr(compare_cli, "progress", progress)
    monkeypatch.setattr("logging.disable", lambda: None)  # the command ends; this process does not
    result = compare(
        "--address", cluster.scheduler_address, "--rows", "300", "--bins", "2",
        "--ways", "spliter,per-block", "--blocks-per-core", "3", "--rounds", "5",
        "--output", str(tmp_path),
    )  # fmt: skip
    assert result.exit_code == 130
    assert "interrupted after 2 rounds" in " ".join(result.stdout.split())
    assert sorted(Counter(run.way for run in records_in(tmp_path)).values()) == [2, 3]
    assert (tmp_path / "histogram.svg").exists()


def test_a_finished_run_is_not_measured_twice(cluster: LocalCluster, tmp_path: Path) -> None:
    common = [
        "--address", cluster.scheduler_address, "--rows", "300", "--bins", "2",
        "--ways", "spliter,per-block", "--blocks-per-core", "3", "--output", str(tmp_path),
    ]  # fmt: skip
    assert compare(*common, "--rounds", "1").exit_code == 0
    first = records_in(tmp_path)
    assert len(first) == 2
    assert compare(*common, "--rounds", "2").exit_code == 0
    both = records_in(tmp_path)
    assert len(both) == 4
    assert [one for one in both if one.repetition == 1] == first
    assert compare(*common, "--rounds", "2", "--seed", "1").exit_code == 0
    assert len(records_in(tmp_path)) == 8


def test_every_way_on_an_embedded_cluster_with_files(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "results"
    result = compare(
        "--rows", "3000", "--dims", "2", "--bins", "4", "--seed", "7",
        "--blocks-per-core", "3", "--rounds", "2", "--output", str(folder),
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "3,000 x 2" in result.stdout
    assert all(way in result.stdout for way in Histogram.ways)
    assert sorted(file.name for file in folder.iterdir()) == [
        "histogram.png",
        "histogram.svg",
        "plans",
        "results.parquet",
        "runs",
    ]
    records = records_in(folder)
    assert {run.way for run in records} == set(Histogram.ways)
    assert {run.repetition for run in records} == {1, 2}
    assert len(pd.read_parquet(folder / "results.parquet")) == len(records)
    settings = settings_in(folder)
    assert (settings["rows"], settings["bins"], settings["seed"]) == (3000, 4, 7)
    assert (settings["backend"], settings["workers"], settings["cores"]) == ("dask", 2, 2)
    tasks = {run.way: run.tasks for run in records}
    assert tasks["per-block"] == 6 + 1
    assert tasks["floor"] is None


def test_sweep_shows_every_blocking(tmp_path: Path) -> None:
    result = compare(
        "--rows", "2000", "--dims", "1", "--sweep", "1,8", "--rounds", "1",
        "--ways", "spliter,floor,per-block", "--workers", "1", "--threads", "2",
        "--output", str(tmp_path),
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    records = records_in(tmp_path)
    assert {(run.blocks_per_core, run.blocks) for run in records} == {(1, 2), (8, 16)}
    assert {run.way for run in records} == {"spliter", "floor", "per-block"}


def test_several_sets_of_points(cluster: LocalCluster, tmp_path: Path) -> None:
    result = run(
        "compare", "csvm", "--address", cluster.scheduler_address, "--rows", "200", "--dims", "2",
        "--sweep", "1,4", "--rounds", "2", "--datasets", "2", "--ways", "spliter,per-block",
        "--iterations", "1", "--output", str(tmp_path),
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "2 rounds on each of 2 sets" in " ".join(result.stdout.split())
    assert settings_in(tmp_path)["datasets"] == 2
    found = [(run.blocks_per_core, run.repetition, run.way) for run in records_in(tmp_path)]
    ways = ("per-block", "spliter")
    assert sorted(found) == sorted(itertools.product((1, 4), range(1, 5), ways))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--datasets", "9" * 30], "Invalid value for '--datasets'"),
        (["--datasets", "2", "--input", "points.npy"], "does not go with --input"),
    ],
)
def test_sets_of_points_that_cannot_be_made(options: list[str], message: str) -> None:
    result = compare(*options, *SMALL)
    assert result.exit_code == 2
    assert message in result.stderr


def test_file_on_the_users_own_cluster(cluster: LocalCluster, tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": np.arange(60.0), "name": "text", "y": np.arange(60) % 7})
    frame.to_parquet(tmp_path / "points.parquet")
    result = compare(
        "--address", cluster.scheduler_address, "--input", str(tmp_path / "points.parquet"),
        "--columns", "y,x", "--ways", "spliter,dask", "--output", str(tmp_path / "out"), *SMALL,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    settings = settings_in(tmp_path / "out")
    assert settings["columns"] == ["y", "x"]
    assert (settings["workers"], settings["cores"]) == (1, 2)
    with Client(cluster) as client:
        assert client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)) == 0


def test_scheduler_file(cluster: LocalCluster, tmp_path: Path) -> None:
    file = tmp_path / "scheduler.json"
    file.write_text(json.dumps({"address": cluster.scheduler_address}), encoding="utf-8")
    result = compare(
        "--address", str(file), "--input", iris_file(150), "--columns", IRIS,
        "--ways", "per-block", *SMALL,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "iris.parquet: 150 x 4" in result.stdout


def test_columns_left_out_by_default_are_told(cluster: LocalCluster, tmp_path: Path) -> None:
    np.save(tmp_path / "wide.npy", np.random.default_rng(0).random((1000, 30)))
    result = compare(
        "--address", cluster.scheduler_address, "--input", str(tmp_path / "wide.npy"),
        "--bins", "3", "--ways", "spliter,floor", *SMALL,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "5 of 30 numeric ones" in result.stderr
    assert "1,000 x 5" in result.stdout


def test_wrong_way_is_caught(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    by_parts = Histogram.by_parts

    def one_too_many(parts: Parts, edges: Any) -> Answer:
        counts = by_parts(parts, edges).value
        counts.flat[0] += parts.made is None and len(parts.sizes) > 2
        return Answer(counts)

    monkeypatch.setattr(Histogram, "by_parts", staticmethod(one_too_many))
    result = compare("--address", cluster.scheduler_address, "--rows", "100", "--bins", "2", *SMALL)
    assert result.exit_code == 1
    said = " ".join(result.stderr.split())
    assert "not all ways gave the same result" in said
    assert "per-block" in said


def test_floor_is_left_out_where_workers_are_elsewhere(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_engine, "is_on_this_machine", lambda _: False)
    common = ["--address", cluster.scheduler_address, "--rows", "50", "--bins", "2", *SMALL]
    result = compare(*common)
    assert result.exit_code == 0, result.output
    assert "floor is left out" in result.stderr
    assert "floor   " not in result.stdout
    asked = compare(*common, "--ways", "spliter,floor")
    assert asked.exit_code == 2
    assert "--ways floor: needs workers on the machine" in asked.stderr


APPS = {
    "kmeans": ["--clusters", "3", "--iterations", "2", "--dims", "3", "--rows", "600"],
    "csvm": ["--iterations", "2", "--dims", "3", "--rows", "300"],
}


@pytest.mark.parametrize("app_name", APPS)
def test_every_way_of_the_other_apps_with_files(
    app_name: str, cluster: LocalCluster, tmp_path: Path
) -> None:
    result = run(
        "compare", app_name, "--address", cluster.scheduler_address, *APPS[app_name],
        "--blocks-per-core", "3", "--rounds", "1", "--output", str(tmp_path),
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    records = records_in(tmp_path)
    assert {run.app for run in records} == {app_name}
    assert {"spliter", "per-block", "rechunk-p2p", "rechunk-tasks", "floor"} <= {
        run.way for run in records
    }
    assert settings_in(tmp_path)["columns"] == ["0", "1", "2"]
    assert "…" not in result.stdout
    assert (tmp_path / f"{app_name}.svg").exists()


def test_real_data_with_several_classes(cluster: LocalCluster) -> None:
    result = run(
        "compare", "csvm", "--address", cluster.scheduler_address, "--input", iris_file(300),
        "--label", "target", "--ways", "spliter,per-block,sklearn", "--iterations", "2", *SMALL,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    shown = " ".join(result.stdout.split())  # the title wraps where the table is narrow
    assert "csvm of iris.parquet: 240 x 4, 2 iterations" in shown


def test_table_with_a_label_and_all_its_other_columns(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    values = np.random.default_rng(0).random((200, 7))
    frame = pd.DataFrame(values, columns=[*"abcdef", "kind"])
    frame["kind"] = (frame["a"] > 0.5).astype(int)
    frame.to_parquet(tmp_path / "table.parquet")
    result = run(
        "compare", "csvm", "--address", cluster.scheduler_address,
        "--input", str(tmp_path / "table.parquet"), "--label", "kind", "--output", str(tmp_path),
        "--ways", "spliter,floor", "--iterations", "1", *SMALL,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    settings = settings_in(tmp_path)
    assert settings["columns"] == list("abcdef")
    assert (settings["label"], settings["rows"]) == ("kind", 160)


def test_labels_that_are_text_are_refused(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": np.arange(9.0), "kind": [*"xyxyxyxyx"]})
    frame.to_parquet(tmp_path / "table.parquet")
    result = run("compare", "csvm", "--input", str(tmp_path / "table.parquet"), "--label", "kind")
    assert result.exit_code == 2
    said = " ".join(result.stderr.split())
    assert "not numeric in" in said
    assert "save labels as numbers, by pandas.factorize" in said


@pytest.mark.parametrize("app_name", ["histogram", "kmeans"])
def test_points_with_gaps_are_refused(app_name: str, cluster: LocalCluster, tmp_path: Path) -> None:
    points = np.ones((50, 2))
    points[40, 1] = np.nan
    np.save(tmp_path / "gaps.npy", points)
    result = run(
        "compare", app_name, "--address", cluster.scheduler_address,
        "--input", str(tmp_path / "gaps.npy"), *SMALL,
    )  # fmt: skip
    assert result.exit_code == 2
    assert "missing or infinite values in 1; choose" in " ".join(result.stderr.split())


def test_way_that_is_not_installed(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask, "why_no_dask_ml", lambda client: "it is not there")
    common = ["--address", cluster.scheduler_address, *APPS["kmeans"], *SMALL]
    asked = run("compare", "kmeans", *common, "--ways", "dask-ml")
    assert asked.exit_code == 2
    assert "--ways dask-ml: it is not there" in " ".join(asked.stderr.split())
    monkeypatch.setattr(dask_engine, "is_on_this_machine", lambda _: False)
    monkeypatch.setattr(kmeans.KMeans, "ways", ("spliter", "dask-ml", "sklearn"))
    result = run("compare", "kmeans", *common)
    assert result.exit_code == 0, result.output
    assert "dask-ml is left out: it is not there" in result.stderr
    assert "sklearn is left out: needs workers on the machine" in " ".join(result.stderr.split())
    assert "dask-ml" not in result.stdout


@pytest.mark.parametrize(
    ("app_name", "arguments", "complaint"),
    [
        ("kmeans", ["--ways", "dask"], "no way 'dask'"),
        ("csvm", ["--input", iris_file(150)], "--label NAME has to say"),
        ("csvm", ["--label", "x"], "--label goes with --input"),
        ("knn", ["--rows", "3", "--queries", "2"], "fewer than --neighbors 5"),
        ("knn", ["--input", iris_file(150)], "20000 of 150 rows of iris.parquet cannot be held"),
    ],
)
def test_what_the_other_apps_cannot_do(app_name: str, arguments: list[str], complaint: str) -> None:
    result = run("compare", app_name, *arguments)
    assert result.exit_code == 2, result.output
    assert complaint in " ".join(result.stderr.split())
