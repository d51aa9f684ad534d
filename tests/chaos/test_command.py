"""`spliter chaos`, on Dask for two seeds: resumed where it ended."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from spliter_experiments.chaos.campaign import read_records
from spliter_experiments.cli import app


@pytest.mark.backend("dask")
def test_resumed(tmp_path: Path) -> None:
    out = tmp_path / "chaos.jsonl"
    arguments = ["chaos", "--backend", "dask", "--out", str(out)]
    first = CliRunner().invoke(app, [*arguments, "--runs", "1"])
    assert first.exit_code == 0, first.output
    made = read_records(out)
    assert [record.seed for record in made] == [0]
    second = CliRunner().invoke(app, [*arguments, "--runs", "2"])
    assert second.exit_code == 0, second.output
    assert read_records(out)[:1] == made
    assert [record.seed for record in read_records(out)] == [0, 1]
    assert "2 runs on dask" in second.output


@pytest.mark.parametrize("arguments", [["--backend", "spark"], ["--seed", "-1"]])
def test_refused(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, ["chaos", *arguments])
    assert result.exit_code == 2
    assert arguments[0] in result.output
