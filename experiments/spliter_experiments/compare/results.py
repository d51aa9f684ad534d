"""The results of a comparison, and their files: ``results.parquet`` and ``summary.json``.

The Parquet file is long: one row per run of a way. The JSON file holds what was asked for, what
ran on what, and medians with quartiles. Both together read back as the comparison they came from.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from spliter_experiments.harness.errors import ResultsError
from spliter_experiments.harness.facts import Facts
from spliter_experiments.harness.runner import Measurement, Summary, ratio, summarise

if TYPE_CHECKING:
    import pandas as pd

Value: TypeAlias = "str | int | float | list[str] | None"

ROWS_FILE = "results.parquet"
SUMMARY_FILE = "summary.json"

ROW_TYPES = {
    "app": "string",
    "blocks_per_core": "int64",
    "blocks": "int64",
    "round": "int64",
    "way": "string",
    "seconds": "float64",
    "tasks": "Int64",
    "bytes_moved": "Int64",
}
"""Columns of the long table; nullable where a way has no such number. A column NAME_seconds for
each phase that a way reports comes after them."""

PHASE_SUFFIX = "_seconds"


@dataclass(frozen=True)
class Stand:
    """All runs at one blocking of the data."""

    blocks_per_core: int
    blocks: int
    measurements: tuple[Measurement, ...]

    def summaries(self) -> list[Summary]:
        """Sum up each way."""
        return summarise(self.measurements)


@dataclass(frozen=True)
class Comparison:
    """What was asked for, what ran, and what it took.

    Parameters
    ----------
    app : str
        What was computed.
    settings : mapping of str to str, int, float, list of str or None
        The options, and what followed from them.
    ways : tuple of str
        The ways, in the order asked for.
    stands : tuple of Stand
        One for each blocking.
    facts : Facts
        Versions and machine.
    """

    app: str
    settings: Mapping[str, Value]
    ways: tuple[str, ...]
    stands: tuple[Stand, ...]
    facts: Facts

    def ordered(self, stand: Stand) -> list[Summary]:
        """Sum up a stand with the ways in the order asked for."""
        return sorted(stand.summaries(), key=lambda summary: self.ways.index(summary.way))


def make_folder(folder: Path) -> None:
    """Make the folder for results, before the time is spent that they take.

    Raises
    ------
    ResultsError
        If that is not possible.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResultsError(f"cannot write results to {folder}: {error}") from error


def write_results(comparison: Comparison, folder: Path) -> list[Path]:
    """Write both files into a folder.

    Returns
    -------
    list of Path
        The files.

    Raises
    ------
    ResultsError
        If that is not possible.
    """
    rows, summary = folder / ROWS_FILE, folder / SUMMARY_FILE
    try:
        long_table(comparison).to_parquet(rows, index=False)
        text = json.dumps(_to_json(comparison), indent=2, ensure_ascii=False)
        summary.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise ResultsError(f"cannot write results to {folder}: {error}") from error
    return [rows, summary]


def read_results(folder: Path) -> Comparison:
    """Read a comparison back from its two files.

    Raises
    ------
    ResultsError
        If they are missing or are not such files.
    """
    import pandas as pd

    try:
        table = pd.read_parquet(folder / ROWS_FILE)
        about = json.loads((folder / SUMMARY_FILE).read_text(encoding="utf-8"))
        stands = tuple(
            _stand(_rows(runs)) for _, runs in table.groupby("blocks_per_core", sort=False)
        )
        return Comparison(
            app=about["app"],
            settings=about["settings"],
            ways=tuple(about["ways"]),
            stands=stands,
            facts=Facts(**about["facts"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ResultsError(f"{folder} holds no results of a comparison: {error}") from error


def long_table(comparison: Comparison) -> pd.DataFrame:
    """Return one row per run of a way."""
    rows = [
        {
            "app": comparison.app,
            "blocks_per_core": stand.blocks_per_core,
            "blocks": stand.blocks,
            "round": run.round,
            "way": run.way,
            "seconds": run.seconds,
            "tasks": run.tasks,
            "bytes_moved": run.nbytes,
        }
        | {name + PHASE_SUFFIX: seconds for name, seconds in run.phases.items()}
        for stand in comparison.stands
        for run in stand.measurements
    ]
    import pandas as pd

    return pd.DataFrame(rows).astype(ROW_TYPES)


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def _stand(rows: list[dict[str, Any]]) -> Stand:
    first = rows[0]
    measurements = tuple(_measurement(row) for row in rows)
    return Stand(int(first["blocks_per_core"]), int(first["blocks"]), measurements)


def _measurement(row: Mapping[str, Any]) -> Measurement:
    import pandas as pd

    phases = {
        name.removesuffix(PHASE_SUFFIX): float(value)
        for name, value in row.items()
        if name.endswith(PHASE_SUFFIX) and not pd.isna(value)
    }
    return Measurement(
        round=int(row["round"]),
        way=str(row["way"]),
        seconds=float(row["seconds"]),
        tasks=None if pd.isna(row["tasks"]) else int(row["tasks"]),
        nbytes=None if pd.isna(row["bytes_moved"]) else int(row["bytes_moved"]),
        phases=phases,
    )


def _to_json(comparison: Comparison) -> dict[str, Any]:
    return {
        "app": comparison.app,
        "settings": dict(comparison.settings),
        "ways": list(comparison.ways),
        "facts": dataclasses.asdict(comparison.facts),
        "stands": [
            {
                "blocks_per_core": stand.blocks_per_core,
                "blocks": stand.blocks,
                "ways": _ways_to_json(comparison.ordered(stand)),
            }
            for stand in comparison.stands
        ],
    }


def _ways_to_json(summaries: list[Summary]) -> dict[str, Any]:
    by_way = {summary.way: summary for summary in summaries}
    return {
        way: {
            "rounds": summary.rounds,
            "median_seconds": summary.median,
            "lower_quartile_seconds": summary.lower,
            "upper_quartile_seconds": summary.upper,
            "over_floor": ratio(summary, by_way.get("floor")),
            "over_spliter": ratio(summary, by_way.get("spliter")),
            "tasks": summary.tasks,
            "bytes_moved": summary.nbytes,
            "phases_seconds": dict(summary.phases),
        }
        for way, summary in by_way.items()
    }
