"""Tasks on Dask workers that exchange values while they run."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
import pytest
import sklearn.cluster
from distributed import Client, wait

from spliter import (
    Exchange,
    InvalidArgumentError,
    Partition,
    Split,
    exchanges,
    gather,
    split,
    task,
)
from spliter_apps import KMeans, _kmeans_passes
from spliter_apps._kmeans_passes import MOST_AHEAD
from spliter_backends import _dask_exchange
from spliter_backends._dask_exchange import LEAST_PATIENCE, TIMES_AS_LONG
from spliter_backends._dask_post import received_nbytes
from tests.dask_backend.conftest import StartCluster
from tests.dask_backend.programs import kill, spread

pytestmark = [pytest.mark.backend("dask"), pytest.mark.timeout(120)]

ROUNDS = 5
WAIT = 60


@task
def rounds(
    partition: Partition, exchange: Exchange, number: int, most: int, delay: float = 0
) -> list[list[Any] | None]:
    """Exchange what was found in the round before, up to so many times; the first waits before."""
    time.sleep(delay)
    found: list[list[Any] | None] = []
    value: Any = number
    for _ in range(most):
        everyone = exchange.allgather(value)
        found.append(everyone)
        if everyone is None:
            break
        value = sum(everyone) + number
    return found


def expected(n: int, most: int) -> list[list[int]]:
    found, values = [], list(range(n))
    for _ in range(most):
        found.append(values)
        values = [sum(values) + number for number in range(n)]
    return found


def start(parts: Split, most: list[int], **delay: float) -> list[Any]:
    met = exchanges(parts)
    assert met is not None
    with parts.together():
        return [
            rounds(partition, exchange, number, rounds_of, delay.get(f"of_{number}", 0))
            for number, (partition, exchange, rounds_of) in enumerate(
                zip(parts, met, most, strict=True)
            )
        ]


def waiting(client: Client) -> dict[str, int]:
    """How many values each worker keeps for tasks that have not asked for them."""

    def count(dask_worker: Any) -> int:
        box = _dask_exchange._Box.of(dask_worker)
        assert box._values.keys() == box._until.keys()
        return sum(map(len, box._values.values()))

    found: dict[str, int] = client.run(count)
    return found


def received(client: Client) -> list[int]:
    def at_worker(dask_worker: Any) -> int:
        return received_nbytes(dask_worker)

    return list(client.run(at_worker).values())


def test_all_get_what_all_have_given(client: Client) -> None:
    with split(spread(client, 8)) as parts:
        before = received(client)
        assert gather(start(parts, [ROUNDS] * 2)) == [expected(2, ROUNDS)] * 2
        assert all(now > then for now, then in zip(received(client), before, strict=True))
    assert set(waiting(client).values()) == {0}


def test_several_tasks_at_one_worker(start_cluster: StartCluster) -> None:
    client = start_cluster(n_workers=2, threads_per_worker=2)
    x = spread(client, 8)
    with split(x, partitions_per_location=2) as parts:
        assert len(parts) == 4
        assert gather(start(parts, [ROUNDS] * 4)) == [expected(4, ROUNDS)] * 4
    with split(x, partitions_per_location=3) as parts:
        assert exchanges(parts) is None, "more tasks than threads"


def test_one_that_begins_later_is_waited_for(client: Client) -> None:
    with split(spread(client, 8)) as parts:
        found = gather(start(parts, [ROUNDS] * 2, of_1=LEAST_PATIENCE / 2))
        assert found == [expected(2, ROUNDS)] * 2


def test_one_that_stops_is_waited_for_within_bounds(client: Client) -> None:
    with split(spread(client, 8)) as parts:
        begun = time.monotonic()
        found = gather(start(parts, [ROUNDS, 2]))
        assert time.monotonic() - begun < 10 * LEAST_PATIENCE
        assert found == [[*expected(2, 2), None], expected(2, 2)]
    assert set(waiting(client).values()) == {0, 1}  # sent to a task that had ended


def test_none_is_the_last_answer(client: Client) -> None:
    @task
    def ask_twice(partition: Partition, exchange: Exchange) -> list[Any]:
        answers: list[Any] = [exchange.allgather(1)]
        begun = time.monotonic()
        answers.append(exchange.allgather(2))
        return [*answers, time.monotonic() - begun]

    with split(spread(client, 8)) as parts:
        met = exchanges(parts)
        assert met is not None
        *answers, took = ask_twice(parts[0], met[0]).result(timeout=WAIT)
        assert answers == [None, None]
        assert took < LEAST_PATIENCE / 2


def test_patience_grows_with_the_work(client: Client) -> None:
    work = 3 * LEAST_PATIENCE
    with split(spread(client, 8)) as parts:
        # The other one begins after more than the least patience, and is waited for.
        late = work + 2 * LEAST_PATIENCE
        assert late < work + LEAST_PATIENCE + TIMES_AS_LONG * work
        found = gather(start(parts, [ROUNDS] * 2, of_0=work, of_1=late))
        assert found == [expected(2, ROUNDS)] * 2


def test_a_task_that_is_run_again_begins_again(start_cluster: StartCluster) -> None:
    client = start_cluster(n_workers=2)
    with split(spread(client, 8)) as parts:
        futures = start(parts, [ROUNDS] * 2)
        assert gather(futures) == [expected(2, ROUNDS)] * 2
        kill(client, str(parts[0].location))
        # The others have ended long ago: it finds itself alone, and says so.
        assert futures[0].result(timeout=WAIT) == [None]


def test_what_nobody_asks_for_is_dropped() -> None:
    """The next value that comes has those dropped whose senders wait no more, and no others."""
    box = _dask_exchange._Box()
    box.put(("old", 0), (0, 1), b"", -1.0)
    box.put(("waited for", 0), (0, 1), b"", 60.0)
    box.put(("waited for", 0), (0, 2), b"", -1.0)
    time.sleep(0.01)
    box.put(("new", 0), (0, 1), b"", -1.0)
    assert set(box._values) == set(box._until) == {("waited for", 0), ("new", 0)}
    assert box.wait(("waited for", 0), 0, [1, 2], 0) == {1: b"", 2: b""}


def test_what_cannot_be_pickled_is_refused_where_it_is_given(client: Client) -> None:
    @task
    def give(partition: Partition, exchange: Exchange) -> str:
        with pytest.raises((AttributeError, TypeError)):
            exchange.allgather(lambda: None)
        return "refused"

    with split(spread(client, 8)) as parts:
        met = exchanges(parts)
        assert met is not None
        assert give(parts[0], met[0]).result(timeout=WAIT) == "refused"
        assert repr(met[0]) == "<DaskExchange: 0 of 2>"


def test_partitions_of_two_engines_and_none(client: Client) -> None:
    with (
        split(spread(client, 8)) as parts,
        split([np.ones(3)]) as here,
        pytest.raises(InvalidArgumentError, match="3 partitions of 2"),
    ):
        exchanges([*parts, *here])
    with pytest.raises(InvalidArgumentError, match="0 partitions"):
        exchanges([])


def fitted(x: da.Array, **settings: Any) -> KMeans:
    settings = {"n_init": 1, "max_iter": 25, "tol": 0} | settings
    return KMeans(5, init=x[:5].compute(), **settings).fit(x)


def normal(rows: int = 4_000) -> da.Array:
    points = np.random.default_rng(0).normal(size=(rows, 8))
    x: da.Array = da.from_array(points, chunks=(rows // 20, 8)).persist()
    wait(x)
    return x


@dataclass(frozen=True)
class Tired:
    """An exchange that hears of nobody any more after some rounds."""

    exchange: Exchange
    rounds: list[int]

    def allgather(self, value: Any) -> list[Any] | None:
        """Exchange values, while it still does that."""
        found = self.exchange.allgather(value)
        self.rounds[0] -= 1
        return found if self.rounds[0] >= 0 else None


@pytest.mark.parametrize(
    ("number", "rounds"), [(0, 0), (1, 0), (0, 1), (1, 7), (0, MOST_AHEAD - 2)]
)
def test_k_means_goes_on_where_a_task_waits_in_vain(
    client: Client, monkeypatch: pytest.MonkeyPatch, number: int, rounds: int
) -> None:
    x = normal()
    expected = fitted(x)
    asked = []

    def soon_tired(partitions: Any) -> Any:
        asked.append(len(partitions))
        met: Any = exchanges(partitions)
        met[number] = Tired(met[number], [rounds])
        return met

    monkeypatch.setattr("spliter_apps._kmeans_passes.exchanges", soon_tired)
    found = fitted(x)
    assert asked == [2], "it was tried again"
    np.testing.assert_array_equal(found.cluster_centers_, expected.cluster_centers_)
    np.testing.assert_array_equal(found.labels_, expected.labels_)
    assert (found.n_iter_, found.inertia_) == (expected.n_iter_, expected.inertia_)


def test_k_means_whose_clusters_lose_their_points_exchanges_on(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def counting(partitions: Any) -> Any:
        asked.append(len(partitions))
        return exchanges(partitions)

    monkeypatch.setattr("spliter_apps._kmeans_passes.exchanges", counting)
    x = normal()
    points = x.compute()
    start = np.vstack([points[:4], points.max(axis=0)[None] * 50])  # nobody is near that one
    settings: dict[str, Any] = {"n_init": 1, "max_iter": 25, "tol": 0}
    found = KMeans(5, init=start, **settings).fit(x)
    assert len(asked) > 2
    alone = sklearn.cluster.KMeans(5, init=start, **settings).fit(points)
    assert found.inertia_ == pytest.approx(alone.inertia_, rel=1e-6)
    assert found.n_iter_ == alone.n_iter_


def test_k_means_whose_task_is_run_again_alone(
    start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It makes one step; the others have made all, and their results are still there."""
    client = start_cluster(n_workers=2)
    x = normal()
    expected = fitted(x)
    killed: list[Any] = []
    outcome = _kmeans_passes.Sent.outcome

    def after_a_death(self: Any, *args: Any) -> Any:
        if not killed:
            killed.append(str(self.partitions[0].location))
            wait(self.passes[-1], timeout=WAIT)
            kill(client, killed[0])
        return outcome(self, *args)

    monkeypatch.setattr(_kmeans_passes.Sent, "outcome", after_a_death)
    found = fitted(x)
    assert killed
    np.testing.assert_allclose(found.cluster_centers_, expected.cluster_centers_, rtol=1e-9)
    assert found.n_iter_ == expected.n_iter_
    assert found.inertia_ == pytest.approx(expected.inertia_, rel=1e-9)


def test_two_exchanges_whose_tasks_wait_for_each_others_threads(client: Client) -> None:
    with split(spread(client, 8)) as parts:
        one, other = exchanges(parts), exchanges(parts)
        assert one is not None
        assert other is not None
        here, there = parts
        begun = [rounds(here, one[0], 0, 3), rounds(there, other[1], 1, 3)]
        while {future.status for future in begun} == {"pending"} and not both_run(client):
            time.sleep(0.01)
        queued = [rounds(here, other[0], 0, 3), rounds(there, one[1], 1, 3)]
        since = time.monotonic()
        found = gather([*begun, *queued])
        assert time.monotonic() - since < 10 * LEAST_PATIENCE
        # The first one to lose patience lets the other exchange take place.
        assert [None] in found
        for answers in found:
            heard = [answer for answer in answers if answer is not None]
            assert heard == expected(2, 3)[: len(heard)]
            assert len(heard) == 3 or answers == [*heard, None]


def both_run(client: Client) -> bool:
    def count(dask_worker: Any) -> int:
        return sum(one.key.startswith("rounds") for one in dask_worker.state.executing)

    return all(client.run(count).values())
