"""What a user asks for: figures, a size, a site. Kept with the submission, to plan it again."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from spliter_experiments.evaluation import PlannedRun, load_scenario, plan_runs
from spliter_experiments.slurm.jobs import Sweep, chain_of, make_jobs
from spliter_experiments.slurm.render import Choices, Script, interface_of, render
from spliter_experiments.slurm.site import Site, load_site

Measured = Callable[[PlannedRun], float | None]


class Request(BaseModel):
    """Which runs of which figures, and how they are to be jobs.

    Parameters
    ----------
    figures : tuple of str
        Figures, or scenario files by their whole path.
    size : str
        ``full`` or ``laptop``.
    backend : str
        What to run on.
    configurations, nodes : tuple
        Only these; None for all.
    repetitions : int or None
        In place of the scenario's.
    site : str
        Name of a profile, or a profile file by its whole path.
    overrides : mapping of str to str
        Entries of the profile that the user gave: account, qos, partition, constraint, venv,
        python.
    modules, prolog : tuple of str
        To load, and lines to run, after those of the profile.
    network : str or None
        Which of the site's networks, or an interface by name.
    nodelist, exclude : str
        Nodes to use and to leave.
    sweep : str
        How jobs stand to each other.
    hours : float or None
        The longest time limit to ask for.
    beside : tuple of str
        Engines to start beside.
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
    sweep: Sweep = Sweep.ARRAY
    hours: float | None = None
    beside: tuple[Literal["dask", "dataclay"], ...] = ()

    def load_site(self) -> Site:
        """Return the site, with what the user said over it.

        Raises
        ------
        ProfileError
            If the profile cannot be used.
        """
        site = load_site(self.site)
        added = {
            "modules": (*site.modules, *self.modules),
            "prolog": (*site.prolog, *self.prolog),
        }
        return site.model_copy(update={**self.overrides, **added})

    def plan(self, measured: Measured) -> list[PlannedRun]:
        """Return all runs.

        Parameters
        ----------
        measured : callable
            Given a run, returns the seconds that such runs took earlier, or None.

        Raises
        ------
        ScenarioError
            If a figure is none.
        PlanError
            If what is asked for of it cannot be run.
        """
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
        """Return what tells ``spliter experiment run`` of the plan, beside what its runs say."""
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

    def scripts(
        self, runs: Collection[PlannedRun], folder: Path, prefix: str
    ) -> tuple[list[Script], dict[str, str]]:
        """Render the jobs of runs.

        Parameters
        ----------
        runs : collection of PlannedRun
            Some of the plan.
        folder : Path
            Of the submission.
        prefix : str
            Begins the names of the jobs.

        Returns
        -------
        list of Script
            In the order to hand in.
        dict of str to str
            After which job each begins, by name.

        Raises
        ------
        TooMuchError
            If the site cannot run one of them.
        ProfileError
            If the profile cannot be used, or wants something that was not given.
        """
        site = self.load_site()
        jobs = make_jobs(
            list(runs),
            site,
            sweep=self.sweep,
            seconds=None if self.hours is None else 3600 * self.hours,
            beside=frozenset(self.beside),
            prefix=prefix,
        )
        choices = Choices(
            interface_of(site, self.network), self.nodelist, self.exclude, self.plan_options()
        )
        scripts = [render(job, site, choices, folder) for job in jobs]
        return scripts, chain_of(jobs, self.sweep)
