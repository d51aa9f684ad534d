"""Check the paper's findings against medians measured here, and against the paper's numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from spliter_experiments.evaluation.schema import Claim, Paper, Scenario
from spliter_experiments.harness.summary import Summary

Series: TypeAlias = Mapping[str, Mapping[float, float]]
"""Seconds by configuration and x value."""

PAPER_NAMES = {"dask": "Dask", "compss": "COMPSs with dataClay", "process": "one process"}
"""Display names of the paper's series."""

PAPER_SERIES = {
    "dask": "dask",
    **dict.fromkeys(("compss+dataclay", "compss", "dataclay"), "compss"),
    "process": "process",
}
"""Paper's series to compare each engine with, if any; the paper ran COMPSs over dataClay."""


@dataclass(frozen=True)
class Finding:
    """Result of checking one claim on one engine.

    `here` and `paper` are the claim's measure of the runs and of the paper's numbers, None if a
    value is missing.
    """

    engine: str
    claim: Claim
    here: float | None
    paper: float | None

    @property
    def holds(self) -> bool | None:
        """Whether the claim holds here; None if a configuration was not run."""
        if self.here is None:
            return None
        if self.claim.at_least is not None:
            return self.here >= self.claim.at_least
        assert self.claim.at_most is not None
        return self.here <= self.claim.at_most

    @property
    def sentence(self) -> str:
        verdict = {True: "Holds", False: "Does not hold", None: "Cannot be told"}[self.holds]
        here = "a configuration was not run" if self.here is None else f"{self.here:.2f} times"
        limit = (
            f"at least {self.claim.at_least:g}"
            if self.claim.at_least is not None
            else f"at most {self.claim.at_most:g}"
        )
        paper = "" if self.paper is None else f", {self.paper:.2f} times in the paper"
        return f"{verdict} on {self.engine}: {self.claim.says} ({here}, {limit} asked{paper})."


def findings(scenario: Scenario, bars: Sequence[Summary]) -> list[Finding]:
    engines = dict.fromkeys(bar.engine for bar in bars)
    return [
        Finding(
            engine,
            claim,
            here=_measure(claim, measured(bars, engine)),
            paper=_measure(claim, published(scenario.paper, PAPER_SERIES.get(engine))),
        )
        for engine in engines
        for claim in scenario.claims
    ]


def measured(bars: Sequence[Summary], engine: str) -> Series:
    found: dict[str, dict[float, float]] = {}
    for bar in bars:
        if bar.engine == engine:
            found.setdefault(bar.configuration, {})[bar.x] = bar.median
    return found


def published(paper: Paper, series: str | None) -> Series:
    found = {} if series is None else getattr(paper, series)
    return {name: dict(zip(paper.x, seconds, strict=True)) for name, seconds in found.items()}


def _measure(claim: Claim, series: Series) -> float | None:
    one = series.get(claim.of, {})
    other = one if claim.against is None else series.get(claim.against, {})
    places = sorted(set(one) & set(other))
    if not places:
        return None
    first, last = places[0], places[-1]
    if claim.measure == "ratio":
        return one[last] / other[last]
    if claim.measure == "worst-ratio":
        return max(one[x] / other[x] for x in places)
    if first == last:
        return None
    growth = one[last] / one[first]
    return growth if claim.measure == "growth" else growth / (other[last] / other[first])
