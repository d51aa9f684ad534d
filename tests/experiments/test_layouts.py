"""Every way moves the bytes that a pattern describes; failing peers end with an error in time."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("typer")

from typer.testing import CliRunner

from spliter_experiments.cli import app as cli
from spliter_experiments.harness.console import Listener
from spliter_experiments.harness.errors import OptionError, PeerError, WaysDisagreeError
from spliter_experiments.harness.records import ResultsFolder
from spliter_experiments.harness.workload import Comparison, Options, run_cases
from spliter_experiments.layouts import movers, peers, workload
from spliter_experiments.layouts.movers import mover_of, ping_pong_of, stage_of
from spliter_experiments.layouts.patterns import CASES, HALOS_X, HALOS_Y, SIZES, Halo, pattern_of
from spliter_experiments.layouts.program import answer, timed
from tests.conftest import ROOT, SOURCE_ROOTS

SUBJECTS = workload.subjects_of(list(CASES), two_ranks=False)
MOVES = [
    pytest.param(way, subject, id=f"{way} {subject.name} {subject.size}")
    for subject in SUBJECTS
    for way in ("llvm", "numpy")
    if subject.nbytes < 2_000_000
]
ENVIRONMENTS = {"mpich": "SPLITER_MPICH", "openmpi": "SPLITER_OPENMPI"}


def floats_sent(halo: Halo) -> int:
    j, k, i = halo.count
    return 4 * j * i + 3 * j * k * i + 2 * j * k * i


PUBLISHED: dict[str, Callable[..., int]] = {
    "WRF_x_vec": lambda halo: 4 * floats_sent(halo),
    "WRF_x_sa": lambda halo: 4 * floats_sent(halo),
    "WRF_y_vec": lambda halo: 4 * floats_sent(halo),
    "WRF_y_sa": lambda halo: 4 * floats_sent(halo),
    "MILC_su3_zd": lambda t, z, y, x: 24 * t * y * x,
    "NAS_LU_x": lambda n: 40 * n,
    "NAS_LU_y": lambda n: 40 * n,
    "NAS_MG_x": lambda z, y, x: 8 * (z - 2) * (y - 2),
    "NAS_MG_y": lambda z, y, x: 8 * (z - 2) * (x - 2),
    "NAS_MG_z": lambda z, y, x: 8 * (y - 2) * (x - 2),
    "FFT2": lambda n: 16 * n * n // 2,
    "SPECFEM3D_oc": lambda points, shared: 4 * shared,
    "LAMMPS_full": lambda atoms, sent: 64 * sent,
}
"""Bytes that DDTBench sends, from its parameters."""


@pytest.mark.parametrize("case", PUBLISHED)
def test_patterns_have_the_published_sizes(case: str) -> None:
    _, arguments = CASES[case]
    assert len(arguments) == SIZES
    sizes = [pattern_of(case, size).layout.size for size in range(SIZES)]
    assert sizes == [PUBLISHED[case](*given) for given in arguments]
    assert sizes == sorted(set(sizes))


def test_halos_lie_in_the_arrays() -> None:
    for halo in (*HALOS_X, *HALOS_Y):
        ends = [at + count for at, count in zip(halo.first, halo.count, strict=True)]
        assert all(end <= size for end, size in zip(ends, halo.shape, strict=True))


def test_vectors_and_subarrays_of_wrf_are_the_same_bytes() -> None:
    for direction in "xy":
        vec, sa = (
            pattern.layout.commit("numpy").pack(pattern.memory())
            for pattern in (pattern_of(f"WRF_{direction}_{kind}", 0) for kind in ("vec", "sa"))
        )
        np.testing.assert_array_equal(vec, sa)


def test_a_column_is_packed_as_by_slicing() -> None:
    whole = np.arange(18 * 18 * 34, dtype=np.float64).reshape(18, 18, 34)
    first = np.ravel_multi_index((1, 1, 32), whole.shape)
    packer = pattern_of("NAS_MG_x", 0).layout.commit("numpy")
    packed = packer.pack(whole.reshape(-1)[first:])
    np.testing.assert_array_equal(packed.view("f8"), whole[1:-1, 1:-1, 32].ravel())


def moved(way: str, subject: workload.Subject) -> Any:
    stage = stage_of(subject.case, subject.size)
    stage.set_up(subject.action)
    call = mover_of(way, stage).call(stage, subject.action)
    call()
    return stage.result(subject.action, call).copy()


@pytest.mark.parametrize(("way", "subject"), MOVES)
def test_ways_move_the_bytes_that_views_name(way: str, subject: workload.Subject) -> None:
    pytest.importorskip(workload.OURS[way])
    expected = moved("views", subject)
    assert expected.any()
    np.testing.assert_array_equal(moved(way, subject), expected)


def test_what_was_packed_before_is_not_taken_for_a_result() -> None:
    stage = stage_of("NAS_LU_y", 0)
    for action in ("pack", "unpack"):
        stage.set_up(action)
        assert not stage.result(action, lambda: None).any()


def test_calls_are_repeated_until_the_clock_is_exact() -> None:
    calls = Counter[str]()
    clock = iter(range(100))
    assert timed(lambda: calls.update(["call"]), Stepping(clock)) == 0.25
    assert calls["call"] == 1 + 2 + 4


class Stepping:
    """Clock of another rank: the third time is long enough."""

    def __init__(self, clock: Iterator[int]) -> None:
        self.clock = clock

    def bcast(self, seconds: float) -> float:
        return 1.0 if next(self.clock) == 2 else 0.0


class Loopback:
    """Communicator of two ranks that are threads."""

    def __init__(self, rank: int, mail: list[queue.Queue[Any]], damage: bool) -> None:
        self.rank, self.mail, self.damage = rank, mail, damage

    def Send(self, packed: Any, to: int) -> None:  # noqa: N802
        sent = packed.copy()
        sent[-1] += self.damage  # on the way back as well
        self.mail[to].put(sent)

    def Recv(self, packed: Any, source: int) -> None:  # noqa: N802
        packed[...] = self.mail[self.rank].get(timeout=60)


def run_two_ranks(case: str, damage: bool = False) -> list[bool]:
    """Exchange in two threads; return for each rank whether its result is right."""
    mail: list[queue.Queue[Any]] = [queue.Queue(), queue.Queue()]
    found = [False, False]

    def rank(number: int) -> None:
        program = ping_pong_of(case, 0, "packed", Loopback(number, mail, damage))
        program.stage.set_up("unpack")
        for _ in range(2):
            program.run()
        found[number] = program.is_right()

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(2)]
    with pytest.MonkeyPatch.context() as patch:
        # The buffers of a case are cached, and ranks are processes.
        patch.setattr(movers, "stage_of", stage_of.__wrapped__)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return found


EXCHANGED = ("FFT2", "MILC_su3_zd")


@pytest.mark.parametrize("case", EXCHANGED)
def test_two_ranks_exchange_every_bit(case: str) -> None:
    assert run_two_ranks(case) == [True, True]


@pytest.mark.parametrize("case", EXCHANGED)
def test_a_damaged_message_is_a_wrong_result(case: str) -> None:
    assert run_two_ranks(case, damage=True) == [False, False]


FAKE = """
import json, os, socket, sys, time

def main(port, token, mpi=""):
    if {how!r} == "ends":
        sys.exit("no such library")
    with socket.create_connection(("127.0.0.1", int(port))) as connection:
        lines = connection.makefile("rw")
        def send(text):
            lines.write(text + "\\n")
            lines.flush()
        if {how!r} == "stranger":
            token = "another"
        send(json.dumps({{"token": token, "mpi": "Fake MPI", "mpi_version": "1", "ranks": 1}}))
        for line in lines:
            send({{
                "answers": lambda: json.dumps({{"seconds": 0.5, "value": {value}}}),
                "fails": lambda: json.dumps({{"error": "ValueError: wrong"}}),
                "garbage": lambda: "[1, 2",
                "dies": lambda: os._exit(3),
                "hangs": lambda: time.sleep(600),
            }}[{how!r}]())

main(*sys.argv[1:])
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Write the program of a fake peer and return its module."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(peers, "END_SECONDS", 0.2)

    def write(how: str, value: int = 1) -> str:
        (tmp_path / f"fake_{how}.py").write_text(FAKE.format(how=how, value=value))
        return f"fake_{how}"

    return write


REQUEST = {"way": "mpi", "case": "NAS_LU_x", "size": 0, "action": "pack"}


def test_a_peer_answers(fake: Callable[..., str]) -> None:
    with peers.started("Fake MPI", sys.executable, 1, "Fake MPI", fake("answers")) as peer:
        assert peer.query(**REQUEST) == {"seconds": 0.5, "value": 1}
        process = peer._process
        assert process.poll() is None
    assert process.poll() == 0


@pytest.mark.parametrize(
    ("how", "reason"),
    [("ends", "exit code 1.*no such library"), ("stranger", "another process answered")],
)
def test_a_peer_that_does_not_start(fake: Callable[..., str], how: str, reason: str) -> None:
    with (
        pytest.raises(PeerError, match=reason),
        peers.started("Fake MPI", sys.executable, program=fake(how)),
    ):
        pass


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("fails", "failed on .*NAS_LU_x.*ValueError: wrong"),
        ("garbage", "did not answer .*NAS_LU_x"),
        ("dies", "closed the connection"),
        ("hangs", "timed out"),
    ],
)
def test_a_peer_that_does_not_answer(
    fake: Callable[..., str], monkeypatch: pytest.MonkeyPatch, how: str, reason: str
) -> None:
    monkeypatch.setattr(peers, "ANSWER_SECONDS", 1.0 if how == "hangs" else 60.0)
    with peers.started("Fake MPI", sys.executable, program=fake(how)) as peer:
        with pytest.raises(PeerError, match=reason):
            peer.query(**REQUEST)
        process = peer._process
    assert process.poll() is not None


def test_another_library_than_named_is_refused(fake: Callable[..., str]) -> None:
    with (
        pytest.raises(PeerError, match="has Fake MPI with 1 ranks instead of MPICH"),
        peers.started("MPICH", sys.executable, 1, "MPICH", fake("answers")),
    ):
        pass


def test_a_failure_of_an_action_is_an_answer() -> None:
    assert "KeyError" in answer({**REQUEST, "way": "none"})["error"]


def test_wrong_bytes_end_the_comparison(fake: Callable[..., str]) -> None:
    subject = workload.Subject("NAS_LU_x", 0, "pack")
    with (
        peers.started("SplIter", sys.executable) as own,
        peers.started("Fake MPI", sys.executable, program=fake("answers")) as other,
    ):
        found = workload.Peers({"numpy": (own, "numpy"), "mpich": (other, "mpi")}, {})
        case = workload.case_of(subject, ("numpy", "mpich"), found, Options(rounds=1), "")
        with pytest.raises(WaysDisagreeError):
            run_cases([case], Comparison(), Listener())


def test_peers_that_cannot_start_are_left_out_with_the_reason(tmp_path: Path) -> None:
    notes: list[str] = []
    pythons = {"mpich": str(tmp_path / "python"), "openmpi": None}
    with workload.started_peers(
        sys.executable, pythons, two_ranks=False, listener=Listener(note=notes.append)
    ) as found:
        assert "numpy" in found.by_way
        assert not set(workload.LIBRARIES) & set(found.by_way)
    mpich, openmpi = notes[-2:]
    assert "mpich is left out: MPICH does not start" in mpich
    assert openmpi == "openmpi is left out: give the Python of its environment, --openmpi"


def test_two_ranks_without_any_library_are_refused() -> None:
    with (
        pytest.raises(OptionError, match="no way is left"),
        workload.started_peers(sys.executable, {}, two_ranks=True, listener=Listener()),
    ):
        pass


def test_the_command_records_every_run(tmp_path: Path) -> None:
    words = [
        "compare",
        "layout",
        "--workload",
        "NAS_LU_y",
        "--rounds",
        "2",
        "--output",
        str(tmp_path),
    ]
    environment = {**dict.fromkeys(ENVIRONMENTS.values(), ""), "COLUMNS": "150"}
    done = CliRunner().invoke(cli, words, env=environment)
    assert done.exit_code == 0, done.output
    records = ResultsFolder(tmp_path).records()
    ways = {record.way for record in records}
    assert {"numpy", "views"} <= ways
    runs = Counter((record.app, record.x, record.way) for record in records)
    assert set(runs.values()) == {2}
    assert len(runs) == 2 * SIZES * len(ways)
    assert "unpack" in done.output


def test_an_unknown_case_names_the_known_ones() -> None:
    with pytest.raises(OptionError, match=r"'FFT3'.*WRF_x_vec.*structs"):
        workload.Layout("FFT3").patterns()


def python_of(way: str) -> str:
    python = os.environ.get(ENVIRONMENTS[way])
    if not python:
        pytest.skip(f"{ENVIRONMENTS[way]} does not name the Python of an environment with it")
    return python


@pytest.mark.parametrize("way", ENVIRONMENTS)
@pytest.mark.parametrize("two_ranks", [False, True])
def test_mpi_libraries_move_the_same_bytes(way: str, two_ranks: bool) -> None:
    python = python_of(way)
    notes: list[str] = []
    with workload.started_peers(
        sys.executable, {way: python}, two_ranks, Listener(note=notes.append)
    ) as found:
        assert way in found.by_way, notes
        for subject in workload.subjects_of(list(CASES), two_ranks):
            values = {
                name: found.way(name, subject).run().value
                for name in found.by_way
                if name in {"views", way, f"{way}-packed"}
            }
            assert len(values) == 2
            assert len(set(values.values())) == 1, (subject, values)
            assert not two_ranks or values[way] is True


@pytest.mark.parametrize("way", ENVIRONMENTS)
def test_random_nests_are_the_same_in_mpi_libraries(way: str) -> None:
    python = python_of(way)
    for package in ("pytest", "hypothesis", "psutil"):
        if subprocess.run([python, "-c", f"import {package}"], check=False).returncode:
            pytest.skip(f"{python} has no {package}")
    options = ["-c", os.devnull, "--rootdir", str(ROOT), "--noconftest", "-p", "no:cacheprovider"]
    nests = ROOT / "tests" / "layout" / "test_mpi.py"
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-k", "bounds or come_back", *options, str(nests)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, SOURCE_ROOTS))},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
