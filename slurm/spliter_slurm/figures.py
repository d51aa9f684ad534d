"""Render the ready-made batch scripts: one for each figure of the paper and each of two sites.

``python -m spliter_slurm.figures`` writes them to ``slurm/scripts`` of a checkout. Such a script
starts a cluster of each size that its figure compares, one after the other, on the nodes of one
allocation. What differs between users (account, folder, virtual environment) is taken from the
shell in which the script is submitted.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from spliter_experiments.evaluation import FIGURES, load_scenario, plan_runs
from spliter_experiments.evaluation.catalog import file_stem
from spliter_experiments.evaluation.schema import Scenario, SizeName
from spliter_slurm.jobs import Job, Stand, make_jobs
from spliter_slurm.render import (
    ADDRESSES,
    WORKER_SHARE,
    batch_context,
    batch_options,
    environment,
    interface_of,
)
from spliter_slurm.site import Site, load_site

READY_FIGURES = tuple(figure for figure in FIGURES if figure.isdecimal())
READY_SITES = ("generic", "marenostrum5")

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
"""Folder of the scripts in a checkout; they are not installed."""

SIZES: Sequence[SizeName] = ("full", "laptop")

JOB_NAME = "spliter"
"""Name of all jobs: with ``--dependency=singleton`` it lets one of them run at a time."""

SHAPE: Mapping[str, str] = {
    "nodes": '"$count"',
    "workers": '"$((count * workers_per_node))"',
    "per_node": '"$workers_per_node"',
    "threads": '"$threads"',
}
"""Size of a cluster, in variables of the script."""


def ready_scripts() -> dict[str, str]:
    """Return all scripts, by their path in the folder.

    Examples
    --------
    >>> sorted(ready_scripts())[:2]
    ['generic/fig09.sbatch', 'generic/fig10.sbatch']
    """
    return {
        f"{site}/{file_stem(figure)}.sbatch": render_figure(figure, load_site(site))
        for site in READY_SITES
        for figure in READY_FIGURES
    }


def render_figure(figure: str, site: Site) -> str:
    """Render the script of a figure: with Dask, in all sizes."""
    scenario = load_scenario(figure)
    stem = file_stem(figure)
    jobs = make_jobs(plan_runs(scenario, "full"), site)
    largest = max((job.shape for job in jobs), key=lambda shape: shape.nodes)
    whole = Job(JOB_NAME, largest, (), min(site.seconds, sum(job.seconds for job in jobs)))
    has_services = largest.engine in ADDRESSES
    options = {"output": f"{JOB_NAME}-{stem}-%j.out", "dependency": "singleton"}
    memory = int(WORKER_SHARE * site.memory_bytes)
    context = {
        **batch_context(site, interface_of(site, None)),
        "figure": figure,
        "title": scenario.title,
        "stem": stem,
        "file": f"slurm/scripts/{site.name}/{stem}.sbatch",
        "batch_options": batch_options(whole, site, **options),
        "job": {
            "shape": {"engine": largest.engine, **SHAPE},
            "has_services": has_services,
            "by_mpi": False,  # as it starts clusters on some of the allocation's nodes
        },
        "worker_memory": f'"$(({memory} / workers_per_node))"',
        "words": _words(figure, largest.engine),
        "sizes": {
            size: {"size": scenario.sizes[size], "limits": _limits(scenario, size)}
            for size in SIZES
        },
    }
    return environment().get_template("figure.sbatch.j2").render(context)


def _words(figure: str, engine: str) -> list[str]:
    """Return the words of a command, for the shell, with variables set by the script."""
    chosen = ["--backend", engine, ADDRESSES[engine]] if engine in ADDRESSES else []
    return [
        *('"$python"', "-m", "spliter_experiments", "experiment", "run", figure),
        *("--size", '"$size"', "--nodes", '"$count"', "--results", '"$folder/results"', *chosen),
    ]


def _limits(scenario: Scenario, size: SizeName) -> dict[int, int]:
    """Return for each number of nodes the seconds after which its runs are ended."""
    runs = plan_runs(scenario, size)
    return {
        nodes: Stand("", tuple(run for run in runs if run.nodes == nodes)).limit
        for nodes in scenario.sizes[size].nodes
    }


def main() -> None:
    """Write all scripts anew."""
    shutil.rmtree(SCRIPTS, ignore_errors=True)
    for name, text in ready_scripts().items():
        (SCRIPTS / name).parent.mkdir(parents=True, exist_ok=True)
        (SCRIPTS / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
