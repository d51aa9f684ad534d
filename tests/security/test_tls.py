"""A Dask cluster that speaks TLS alone: everything works on it, and nobody else gets in."""

from __future__ import annotations

import gc
import operator
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("distributed")
# Without it Dask cannot make certificates for the time of a test.
pytest.importorskip("cryptography")

import dask
import dask.array as da
from distributed import Client, LocalCluster, Security, wait
from typer.testing import CliRunner, Result

from spliter import reduce, split
from spliter_apps import CascadeSVM, KMeans, NearestNeighbors, histogramdd
from spliter_experiments.cli import app
from tests.conftest import RunPython
from tests.dask_backend.programs import products, total, where
from tests.dask_workers import workers_of

pytestmark = pytest.mark.backend("dask")

PAUSE_TOLERANCE = "3s"


@pytest.fixture(scope="module")
def security() -> Security:
    """Certificates of an authority of our own, and the rule that nobody speaks without them."""
    made: Security = Security.temporary()
    return made


@pytest.fixture(scope="module")
def client(security: Security) -> Iterator[Client]:
    """Client of a scheduler and two worker processes, all three with certificates."""
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", security=security
        ) as cluster,
        Client(cluster) as connected,
    ):
        yield connected


@pytest.fixture
def points(client: Client) -> Any:
    values = np.random.default_rng(0).random((240, 3))
    array = da.from_array(values, chunks=(20, 3)).persist()
    wait(array)
    return array


def addresses(client: Client) -> list[str]:
    return [client.scheduler_info()["address"], *workers_of(client)]


def test_everyone_speaks_tls(client: Client) -> None:
    assert len(addresses(client)) == 3
    assert all(address.startswith("tls://") for address in addresses(client))


def test_split_task_and_reduce(client: Client, points: Any) -> None:
    numbers = da.arange(200, chunks=10).persist()
    wait(numbers)
    with split(numbers) as parts:
        assert {planned for planned, _ in client.gather(parts.map(where))} <= {*addresses(client)}
        assert all(planned == ran for planned, ran in client.gather(parts.map(where)))
        partials = [total(partition) for partition in parts]
        assert reduce(operator.add, partials).result(timeout=60) == 199 * 200 // 2


def test_blocks_copied_between_workers_go_through_tls(client: Client) -> None:
    first, second = workers_of(client)
    ones = [client.submit(np.full, 4, n, workers=[first], pure=False) for n in range(6)]
    twos = [client.submit(np.full, 4, n, workers=[second], pure=False) for n in range(6)]
    wait([*ones, *twos])
    with split(ones, twos) as parts:
        found = sum(client.gather(parts.map(products)))
        assert parts.moved.aligned_blocks == 6
    assert found == 4 * sum(n * n for n in range(6))


def test_all_apps(points: Any) -> None:
    values = points.compute()
    counts, _ = histogramdd(points, bins=4, range=[(0, 1)] * 3)
    np.testing.assert_array_equal(counts, np.histogramdd(values, 4, [(0, 1)] * 3)[0])
    assert KMeans(n_clusters=3, n_init=1, random_state=0).fit(points).cluster_centers_.shape == (
        3,
        3,
    )
    _, nearest = NearestNeighbors(n_neighbors=1).fit(points).kneighbors(values[:5])
    np.testing.assert_array_equal(np.asarray(nearest)[:, 0], np.arange(5))
    labels = (points[:, 0] > 0.5).astype(int).persist()
    wait(labels)
    assert CascadeSVM(max_iter=2, cascade=True).fit(points, labels).score(points, labels) > 0.8


@pytest.mark.parametrize("kind", ["tcp", "no certificate", "another authority"])
def test_strangers_are_refused(client: Client, kind: str) -> None:
    address = client.scheduler_info()["address"]
    if kind == "tcp":
        address, given = address.replace("tls://", "tcp://"), None
    else:
        given = Security() if kind == "no certificate" else Security.temporary()
    with pytest.raises((OSError, TypeError, TimeoutError)):
        Client(address, security=given, timeout=PAUSE_TOLERANCE)
    # Dask closes a client that is collected, and waits for ever if that happens while it starts the
    # event loop of another one.
    gc.collect()
    assert client.submit(operator.add, 1, 1, pure=False).result(timeout=60) == 2


@pytest.fixture
def certificates(security: Security, tmp_path: Path) -> dict[str, str]:
    """Write the client's certificates to files; return their names by Dask's settings."""
    given: Any = security  # it declares none of them
    texts = {
        "ca-file": given.tls_ca_file,
        "client.cert": given.tls_client_cert,
        "client.key": given.tls_client_key,
    }
    settings = {}
    for name, text in texts.items():
        file = tmp_path / f"{name}.pem"
        file.touch(mode=0o600)
        file.write_text(text, encoding="utf-8")
        settings[f"distributed.comm.tls.{name}"] = str(file)
    return settings


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_command_takes_certificates_from_the_environment(
    client: Client,
    certificates: dict[str, str],
    run_python: RunPython,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, file in certificates.items():
        variable = name.upper().replace(".", "__").replace("-", "_")
        monkeypatch.setenv(f"DASK_{variable}", file)
    address = client.scheduler_info()["address"]
    done = run_python("-m", "spliter_experiments", "doctor", "--scheduler", address)
    assert done.returncode == 0, done.stdout + done.stderr
    assert address in done.stdout.replace("\n", "")


def test_command_compares_on_a_cluster_with_tls(
    client: Client, certificates: dict[str, str]
) -> None:
    address = client.scheduler_info()["address"]
    with dask.config.set(certificates):
        done = run(
            *("compare", "sum", "--address", address, "--rows", "1000", "--rounds", "1"),
            *("--blocks-per-core", "2", "--ways", "spliter,per-block"),
        )
    assert done.exit_code == 0, done.output


def test_command_without_certificates_says_where_they_come_from(client: Client) -> None:
    done = run("doctor", "--scheduler", client.scheduler_info()["address"])
    assert done.exit_code == 2
    assert "distributed.comm.tls" in " ".join(done.output.split())
