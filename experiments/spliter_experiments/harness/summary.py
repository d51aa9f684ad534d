"""Summarize runs by medians and quartiles, winsorized as in the paper if requested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spliter_experiments.harness.errors import ResultsError
from spliter_experiments.harness.records import Record

FEWEST = 5
"""Minimum number of runs to winsorize, as in the analysis of the paper's authors."""

CLIPPED = 0.3
"""Share of the highest values that winsorizing clips, as in that analysis."""

PHASES = ("init", "split", "rechunk", "iterate")


@dataclass(frozen=True)
class Summary:
    """Medians of all runs of one configuration at one x value, and quartiles of their seconds.

    The phases are those timed separately; `peak` is in bytes.
    """

    engine: str
    configuration: str
    x: float
    blocks: int
    runs: int
    median: float
    lower: float
    upper: float
    phases: Mapping[str, float]
    tasks: int | None = None
    nbytes: int | None = None
    peak: int | None = None


def winsorized(values: Sequence[float]) -> npt.NDArray[np.float64]:
    """Clip the highest values to the next smaller one, and sort.

    Fewer than `FEWEST` values are only sorted.

    >>> winsorized([1, 2, 3, 4, 5, 6, 7, 8, 9, 99]).tolist()
    [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 7.0, 7.0, 7.0]
    """
    found = np.sort(np.asarray(values, dtype=np.float64))
    if len(found) < FEWEST:
        return found
    clipped: npt.NDArray[np.float64]
    clipped = np.minimum(found, found[len(found) - 1 - int(CLIPPED * len(found))])
    return clipped


def summarise(
    records: Sequence[Record], configurations: Sequence[str], winsorize: bool = False
) -> list[Summary]:
    """Summarize runs per engine, configuration and x value, sorted along the x-axis.

    At each x value they are in the order of `configurations`.
    """
    if unknown := sorted({record.configuration for record in records} - {*configurations}):
        raise ResultsError(
            f"there are runs of {', '.join(unknown)}, but only {', '.join(configurations)} were to "
            "be run; their records were changed or come from elsewhere: remove them"
        )
    groups: dict[tuple[float, str, int], list[Record]] = {}
    for record in records:
        key = (record.x, record.engine, configurations.index(record.configuration))
        groups.setdefault(key, []).append(record)
    return [_summary(groups[key], winsorize) for key in sorted(groups)]


def _summary(runs: Sequence[Record], winsorize: bool) -> Summary:
    first = runs[0]
    taken = [run.seconds for run in runs]
    seconds = winsorized(taken) if winsorize else np.array(taken)
    lower, median, upper = np.quantile(seconds, [0.25, 0.5, 0.75])
    parts = {name: _median([getattr(run, f"{name}_seconds") for run in runs]) for name in PHASES}
    return Summary(
        engine=first.engine,
        configuration=first.configuration,
        x=first.x,
        blocks=first.blocks,
        runs=len(runs),
        median=float(median),
        lower=float(lower),
        upper=float(upper),
        phases={name: value for name, value in parts.items() if value is not None},
        tasks=_count([run.tasks for run in runs]),
        nbytes=_count([run.bytes_moved for run in runs]),
        peak=_count([run.peak_memory_bytes for run in runs]),
    )


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None


def _count(values: Sequence[int | None]) -> int | None:
    median = _median(values)
    return None if median is None else round(median)
