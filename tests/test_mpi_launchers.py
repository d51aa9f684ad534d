"""Programs whose Dask cluster is made of the ranks of MPI, as `mpiexec` starts them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, SOURCE_ROOTS
from tests.running import run_command

pytestmark = [pytest.mark.thorough, pytest.mark.backend("dask")]

PROGRAM = """
import dask.array as da
import numpy as np
from dask_mpi import initialize
from distributed import Client, wait
from mpi4py import MPI

from spliter import reduce, split, task
from spliter_apps.kmeans import KMeans


@task
def rank_and_total(partition):
    return {MPI.COMM_WORLD.rank}, sum(block.sum() for block in partition)


def both(one, other):
    return one[0] | other[0], one[1] + other[1]


def received(dask_worker):
    return dask_worker.state.transfer_incoming_count_total


initialize(nthreads=2, interface="lo", dashboard=False)

with Client() as client:
    client.wait_for_workers(3)
    numbers = np.arange(2400.0).reshape(800, 3)
    points = da.from_array(numbers, chunks=(50, 3)).persist()
    wait(points)
    counts = [sum(client.run(received).values())]
    with split(points) as parts:
        results = [rank_and_total(part) for part in parts]
        wait(results)
        counts.append(sum(client.run(received).values()))
        ranks, total = reduce(both, results).result()
        counts.append(sum(client.run(received).values()))
        assert total == numbers.sum(), total
        assert ranks == {2, 3, 4}, ranks
        # The results move, as a control of the counters.
        assert counts[0] == counts[1] < counts[2], counts
    assert KMeans(2, random_state=0).fit(points).labels_.shape == (800,)
    print("all is well")
    raise ValueError("of the program")
"""


def run_ranks(program: str, folder: Path, ranks: int) -> subprocess.CompletedProcess[str]:
    """Run a program in ranks of MPI."""
    pytest.importorskip("dask_mpi", exc_type=ImportError)
    mpiexec = Path(sys.executable).parent / "mpiexec"
    if not mpiexec.exists():
        pytest.skip("no mpiexec of an MPI wheel is beside this Python")
    file = folder / "program.py"
    file.write_text(program, encoding="utf-8")
    return run_command(
        [str(mpiexec), "-n", str(ranks), sys.executable, str(file)],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, SOURCE_ROOTS)),
            "DASK_TEMPORARY_DIRECTORY": str(folder),
        },
    )


def test_the_program_of_the_page(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "clusters.md").read_text(encoding="utf-8")
    found = re.search(
        r"<!-- file: sums\.py -->\n```python\n(.*?)```\n\n"
        r"```console\n\$ mpiexec -n 4 python sums\.py\n(.*?)```",
        page,
        re.DOTALL,
    )
    assert found
    done = run_ranks(found[1], tmp_path, 4)
    assert done.returncode == 0, done.stderr
    assert done.stdout == found[2]


def test_nothing_moves_between_ranks_and_errors_end_all_of_them(tmp_path: Path) -> None:
    done = run_ranks(PROGRAM, tmp_path, 5)
    assert done.stdout.startswith("all is well\n"), done.stderr
    assert "ValueError: of the program" in done.stderr
    assert done.returncode == 1
