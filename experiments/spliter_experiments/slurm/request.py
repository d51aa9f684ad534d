"""Request of a submission: figures, size, site; stored with it, to plan missing runs again."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from spliter_experiments.evaluation import PlannedRun, load_scenario, plan_runs
from spliter_experiments.slurm.jobs import make_jobs
from spliter_experiments.slurm.render import Choices, Script, interface_of, render
from spliter_experiments.slurm.site import Site, load_site

Measured = Callable[[PlannedRun], float | None]


class Request(BaseModel):
    """Requested runs, and options of their jobs: those of ``spliter slurm render``.

    Files are named by absolute paths. `overrides` replace entries of the profile; `modules` and
    `prolog` are added to those of the profile.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    figures: tuple[str, ...]
    size: Literal["full", "laptop"] = "full"
    backend: str = "dask"
    configurations: tuple[str, ...] | None = None
    nodes: tuple[int, ...] | None = None
    repetitions: int | None = None
    site: str
    overrides: dict[str, str] = {}
    modules: tuple[str, ...] = ()
    prolog: tuple[str, ...] = ()
    network: str | None = None
    nodelist: str = ""
    exclude: str = ""
    hours: float | None = None

    def load_site(self) -> Site:
        """Return the site profile with the user's overrides."""
        site = load_site(self.site)
        added = {
            "modules": (*site.modules, *self.modules),
            "prolog": (*site.prolog, *self.prolog),
        }
        return site.model_copy(update={**self.overrides, **added})

    def plan(self, measured: Measured) -> list[PlannedRun]:
        """Return all runs; `measured` returns the seconds of a run in earlier results, or None."""
        runs: list[PlannedRun] = []
        for figure in self.figures:
            runs += plan_runs(
                load_scenario(figure),
                self.size,
                engine=self.backend,
                configurations=self.configurations,
                repetitions=self.repetitions,
                nodes=self.nodes,
                called=figure,
                measured=measured,
            )
        return runs

    def plan_options(self) -> tuple[str, ...]:
        """Return the options of ``spliter experiment run`` that restrict the plan."""
        given = {
            "--configurations": self.configurations,
            "--nodes": self.nodes,
        }
        return tuple(
            word
            for option, values in given.items()
            if values is not None
            for word in (option, ",".join(map(str, values)))
        )

    def scripts(self, runs: Collection[PlannedRun], folder: Path, prefix: str) -> list[Script]:
        """Render the jobs of runs, in submission order."""
        site = self.load_site()
        jobs = make_jobs(
            list(runs),
            site,
            seconds=None if self.hours is None else 3600 * self.hours,
            prefix=prefix,
        )
        choices = Choices(
            interface_of(site, self.network), self.nodelist, self.exclude, self.plan_options()
        )
        return [render(job, site, choices, folder) for job in jobs]
