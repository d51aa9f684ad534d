from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import dask.array as da
import pytest
from distributed import Client, LocalCluster, SpecCluster, wait
from rich.console import Console
from typer.testing import CliRunner

from spliter_experiments.cli import app
from spliter_experiments.evaluation import _profile_preload
from spliter_experiments.evaluation.profile import (
    LEAST_SECONDS,
    Profile,
    TaskRecord,
    profiled,
)
from spliter_experiments.evaluation.profile_cli import profile_table, run_profiled
from spliter_experiments.harness.errors import InputError
from tests.conftest import RunPython

PROGRAM = """
import sys
from distributed import Client, LocalCluster

def double(block):
    return 2 * block

if __name__ == "__main__":
    cluster = LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address="127.0.0.1:0"
    )
    client = Client(cluster)
    blocks = client.scatter(list(range(int(sys.argv[1]))), hash=False)
    for _ in range(3):
        client.gather(client.map(double, blocks, pure=False))
    del blocks
"""

CLOSED = """    client.close()
    cluster.close()
"""


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as connected,
    ):
        yield connected


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every program be the first one of its process."""
    monkeypatch.setattr(_profile_preload, "PROFILE", Profile())


def size_of(block: bytes) -> int:
    return len(block)


def both(left: bytes, right: bytes) -> int:
    return len(left) + len(right)


def tasks(count: int, each: float, gap: float, *, start: float = 0.0) -> list[TaskRecord]:
    """Return tasks of one pass, one after the other with a gap."""
    return [
        TaskRecord("f", start + n * (each + gap), start + n * (each + gap) + each, (f"b{n}",), 0)
        for n in range(count)
    ]


def test_tasks_blocks_and_passes_are_counted(client: Client) -> None:
    workers = sorted(client.nthreads())
    with profiled(client) as found:
        blocks = [
            client.submit(bytes, 1000 + n, workers=[workers[n % 2]], pure=False) for n in range(12)
        ]
        wait(blocks, timeout=60)
        for _ in range(2):
            mapped = [
                client.submit(size_of, block, workers=[workers[n % 2]], pure=False)
                for n, block in enumerate(blocks)
            ]
            assert sum(client.gather(mapped)) == 12_066
    assert (found.cores, len(found.tasks), found.blocks, found.nbytes) == (2, 36, 12, 0)
    assert [(one.name, one.tasks) for one in found.passes()] == [("size_of", 12)] * 2


def test_bytes_that_have_to_be_moved_are_counted_once(client: Client) -> None:
    one, other = sorted(client.nthreads())
    with profiled(client) as found:
        block = client.submit(bytes, 10**6, workers=[one], pure=False)
        wait([block], timeout=60)
        for _ in range(3):
            wait([client.submit(size_of, block, workers=[other], pure=False)], timeout=60)
        wait([client.submit(size_of, block, workers=[one], pure=False)], timeout=60)
    assert 10**6 <= found.nbytes < 1.01 * 10**6


def test_what_all_tasks_read_is_not_what_tells_passes_apart(client: Client) -> None:
    with profiled(client) as found:
        shared = client.submit(bytes, 9, pure=False)
        blocks = [client.submit(bytes, n, pure=False) for n in range(8)]
        wait([shared, *blocks], timeout=60)
        client.gather([client.submit(both, shared, block, pure=False) for block in blocks])
    assert [(one.name, one.tasks) for one in found.passes()] == [("both", 8)]


def test_nothing_is_left_at_the_scheduler(client: Client) -> None:
    with profiled(client):
        pass
    left = client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.plugins))
    assert not [name for name in left if name.startswith("spliter-profile")]


def test_splitting_helps_where_tasks_take_the_time() -> None:
    found = Profile(tasks(100, each=0.001, gap=0.009), cores=2)
    (one,) = found.passes()
    assert one.span == pytest.approx(0.991)
    assert one.work == pytest.approx(0.05)
    assert one.split == pytest.approx(0.05 + LEAST_SECONDS)
    assert one.gain > 10
    assert found.verdict().startswith("Splitting would help: 100 tasks in 1 pass took")


def test_passes_at_the_same_time_take_their_time_once() -> None:
    """Two passes whose tasks alternate: 1 s of program, and each task is work for the other."""
    one, other = tasks(100, 0.004, 0.006), tasks(100, 0.004, 0.006, start=0.005)
    other = [replace(task, name="g", blocks=(f"c{n}",)) for n, task in enumerate(other)]
    found = Profile(one + other, cores=1)
    (first, second) = found.passes()
    assert first.others == 99
    assert first.split >= first.work + 0.39
    assert first.gain < 1.25
    assert second.gain < 1.25
    assert found.verdict().startswith(
        "Splitting would not help much: 200 tasks in 2 passes took 0.999 s, 2 tasks are predicted "
        "to take 0.82 s (1.2 times as fast)"
    )


def test_a_tree_reduction_is_no_pass_over_blocks(client: Client) -> None:
    x = da.ones(64, chunks=1).persist()
    wait(x, timeout=60)
    with profiled(client) as found:
        assert x.sum(split_every=2).compute(optimize_graph=False) == 64
    by_name = {one.name: one for one in found.passes()}
    assert not by_name["sum"].is_reduction
    assert by_name["sum"].can_be_split
    assert by_name["sum-partial"].is_reduction
    assert not by_name["sum-partial"].can_be_split
    assert "64 tasks in 1 pass took" in found.verdict()


def test_tasks_on_two_aligned_collections_are_a_pass(client: Client) -> None:
    xs, ys = (client.map(bytes, range(start, start + 16), pure=False) for start in (0, 100))
    wait([*xs, *ys], timeout=60)
    with profiled(client) as found:
        client.gather(client.map(both, xs, ys, pure=False))
    (one,) = found.passes()
    assert (one.name, one.tasks, one.is_reduction) == ("both", 16, False)


def test_splitting_helps_little_where_the_work_takes_the_time() -> None:
    found = Profile(tasks(100, each=0.1, gap=0.0001), cores=1)
    assert found.verdict().startswith("Splitting would not help much")


def test_splitting_helps_nobody_with_a_task_per_core() -> None:
    found = Profile(tasks(2, each=0.1, gap=5), cores=2)
    assert found.verdict().startswith("Splitting would not help: nowhere are there several tasks")
    assert Profile().verdict().startswith("Splitting would not help")


def test_a_second_pass_begins_where_a_block_is_read_again() -> None:
    found = Profile(tasks(6, 0.1, 0.1) + tasks(6, 0.1, 0.1, start=10), cores=1)
    assert [one.tasks for one in found.passes()] == [6, 6]
    assert all(one.span < 2 for one in found.passes())


@pytest.mark.parametrize("width", [60, 80])
def test_table_can_be_read_on_a_narrow_terminal(width: int) -> None:
    name = "histogram_of_a_block"
    seen = [TaskRecord(name, i, i + 0.0123, (i,), 47_000_000) for i in range(768)]
    console = Console(width=width)
    with console.capture() as captured:
        console.print(profile_table(Profile(seen, 48)))
    # What a line has no room for of the name is at the beginning of the next.
    assert "".join(line.split()[0] for line in captured.get().splitlines()[4:]) == name
    assert "12.3 36.1 GB" in captured.get()
    assert "…" not in captured.get()


@pytest.mark.parametrize("closing", [CLOSED, ""])
def test_profile_command(tmp_path: Path, closing: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM + closing)
    words = ["profile", str(program), "--", "20"]
    others = set(SpecCluster._instances)
    result = CliRunner().invoke(app, words)
    for left in set(SpecCluster._instances) - others:
        left.close()
    assert result.exit_code == 0, result.output
    said = " ".join(result.output.split())
    assert "60 tasks on 2 cores, 20 blocks read, 0 moved" in said
    assert "Splitting would " in said


LOCAL = """
import dask
import dask.array as da

if __name__ == "__main__":
    with dask.config.set(scheduler="threads", num_workers=2):
        x = da.ones(60, chunks=2).persist()
        for _ in range(3):
            assert x.sum().compute() == 60
"""


def test_a_program_on_threads_of_its_own(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(LOCAL)
    found, _ = run_profiled(program, [])
    assert (found.cores, found.nbytes) == (2, 0)
    sums = [one for one in found.passes() if one.tasks == 30]
    assert len(sums) == 3
    assert {one.name for one in sums} == {"sum"}
    assert all(one.can_be_split and one.busy > 0 and one.work <= one.span * 1.01 for one in sums)
    assert found.verdict().startswith("Splitting would ")


def test_a_program_without_dask(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import sys\nassert sys.argv[1:] == ['a']\n")
    with pytest.raises(InputError, match="has run no task of Dask's"):
        run_profiled(program, ["a"])


@pytest.mark.parametrize("before", ["", LOCAL])
def test_a_program_that_exits_with_a_status(tmp_path: Path, before: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"{before}\nimport sys\nsys.exit(3)\n")
    result = CliRunner().invoke(app, ["profile", str(program)])
    assert result.exit_code == 3
    assert ("Splitting would" in result.output) == bool(before)


def test_a_program_that_fails_with_a_client(tmp_path: Path, run_python: RunPython) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM + "    raise RuntimeError('of the program')\n")
    done = run_python("-m", "spliter_experiments", "profile", str(program), "20")
    assert done.returncode == 1
    assert "of the program" in done.stderr
    assert "CommClosedError" not in done.stderr


def test_no_program() -> None:
    result = CliRunner().invoke(app, ["profile", "nowhere.py"])
    assert result.exit_code == 2
    assert "there is no program nowhere.py" in result.output
