"""After ``client.close()`` every use of what belonged to the client says so."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import dask.array as da
import pytest
from distributed import CancelledError, Client, wait

import spliter
from spliter import ClientClosedError, split
from tests.dask_backend.programs import total

pytestmark = [pytest.mark.backend("dask"), pytest.mark.timeout(120)]


class Closed:
    """A collection, its Split and results of tasks, of a client that was closed since."""

    def __init__(self, client: Client) -> None:
        self.x = da.ones((8, 1), chunks=(2, 1)).persist()
        wait(self.x)
        self.parts = split(self.x)
        self.partition = self.parts[0]
        self.futures = self.parts.map(total)
        spliter.gather(self.futures)
        client.close()


@pytest.fixture(scope="module")
def closed(dask_cluster: Any) -> Closed:
    """What is left of a closed client."""
    return Closed(Client(dask_cluster))


USES: dict[str, Callable[[Closed], Any]] = {
    "split": lambda closed: split(closed.x),
    "map": lambda closed: closed.parts.map(total),
    "loop": lambda closed: [total(part) for part in closed.parts],
    "submit": lambda closed: closed.partition.submit(len),
    "map_blocks": lambda closed: closed.parts.map_blocks(abs, dtype=int),
    "map_reduce": lambda closed: closed.parts.map_reduce(total, operator.add),
    "take": lambda closed: closed.parts.take([0]),
    "metrics": lambda closed: closed.parts.metrics(),
    "refresh": lambda closed: closed.parts.refresh(),
    "gather": lambda closed: spliter.gather(closed.futures),
    "reduce": lambda closed: spliter.reduce(operator.add, closed.futures),
    "completed": lambda closed: list(spliter.as_completed(closed.futures)),
    "progress": lambda closed: spliter.progress(closed.futures, disable=True),
}


@pytest.mark.parametrize("use", USES)
def test_use_says_that_the_client_is_closed(closed: Closed, use: str) -> None:
    with pytest.raises(ClientClosedError, match="connect a new client"):
        USES[use](closed)


def test_methods_of_futures_are_those_of_dask(closed: Closed) -> None:
    for future in closed.futures:
        with pytest.raises(CancelledError):
            future.result()
        assert future.exception() is None
        assert future.cancelled()


def test_estimators_say_that_the_client_is_closed(closed: Closed) -> None:
    apps = pytest.importorskip("spliter_apps")
    for collection in (closed.x, closed.parts):
        with pytest.raises(ClientClosedError):
            apps.KMeans(2).fit(collection)


def test_it_looks_closed(closed: Closed) -> None:
    assert repr(closed.parts) == "<Split: 4 blocks, not usable: the client was closed>"
    assert "not usable: the client was closed" in closed.parts._repr_html_()
