"""What the tests of the SLURM part share: scenarios, commands that lie, and a real cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import VirtualSlurm, virtual_slurm
from tests.slurm.fake import Answer, FakeSlurm


@pytest.fixture
def fake_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """A cluster that takes everything and has forgotten it at once."""
    fake = FakeSlurm(tmp_path / "bin")
    fake.answer("squeue", Answer())
    fake.answer("sbatch", *(Answer(f"{number}\n") for number in range(100, 120)))
    monkeypatch.setenv("PATH", f"{fake.folder}:/usr/bin:/bin")
    return fake


@pytest.fixture(scope="module")
def cluster() -> Iterator[VirtualSlurm]:
    """Four virtual nodes of two cores."""
    with virtual_slurm(nodes=4, cores=2) as started:
        yield started
