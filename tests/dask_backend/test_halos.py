"""The recipe on the page for rolling windows: what moves, and that its bits are right."""

from __future__ import annotations

import doctest
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from distributed import Client, wait
from distributed.worker import Worker

from spliter import InvalidArgumentError, Partition, split
from spliter.backend import concatenate
from tests.conftest import ROOT
from tests.dask_workers import workers_of

pytestmark = [pytest.mark.thorough, pytest.mark.backend("dask"), pytest.mark.timeout(120)]

N = 6
LENGTHS = (9, 1, 2, 0, 7, 1, 1, 12)
"""Most blocks are shorter than the window; some rows need those of four other blocks."""


def recipe() -> Callable[..., Any]:
    page = (ROOT / "docs" / "your-own-loop.md").read_text(encoding="utf-8")
    examples = doctest.DocTestParser().get_examples(page.partition("## Rolling windows")[2])
    sources = [one.source for one in examples if one.source.startswith(("from ", "def "))][:3]
    assert "\n".join(sources[1:]).count("\n") - 1 <= 10, "at most ten lines"
    names: dict[str, Any] = {"np": np}
    exec("".join(sources), names)
    made: Callable[..., Any] = names["map_overlap"]
    return made


def averages(rows: Any) -> Any:
    """Return the mean of 13 rows, always added in the same order."""
    return sum(rows[at : len(rows) - 2 * N + at] for at in range(2 * N + 1)) / (2 * N + 1)


def in_turn(client: Client, blocks: Sequence[Any]) -> list[Any]:
    """Return futures of blocks at the two workers in turn: each border is between workers."""
    workers = workers_of(client)
    return [
        client.submit(np.copy, block, workers=[workers[at % 2]], pure=False)
        for at, block in enumerate(blocks)
    ]


def cut(values: Any) -> list[Any]:
    return np.split(values, np.cumsum(LENGTHS)[:-1])


def whole(values: Any, fn: Callable[[Any], Any] = averages) -> Any:
    edge = np.full((N, *values.shape[1:]), np.nan)
    return fn(np.concatenate([edge, values, edge]))


@pytest.mark.parametrize("shape", [(33,), (33, 3)])
@pytest.mark.parametrize("dtype", ["<f8", ">f8"])
def test_bits_are_those_of_the_whole_array(
    client: Client, shape: tuple[int, ...], dtype: str
) -> None:
    values = np.random.default_rng(7).normal(size=shape).astype(dtype)
    options = {"dtype": float, "trailing_shape": shape[1:]}
    for materialize in (False, True):
        with split(in_turn(client, cut(values)), materialize=materialize) as parts:
            assert len({partition.location for partition in parts}) == 2
            made = recipe()(parts, averages, N, np.nan, **options)
            assert made.compute().tobytes() == whole(values).tobytes()


def bytes_sent(dask_worker: Worker) -> tuple[int, int]:
    """Return the bytes that other workers, and clients, have read from a worker."""
    log = dask_worker.transfer_outgoing_log
    workers = sum(one["total"] for one in log if one["who"] is not None)
    return workers, sum(one["total"] for one in log) - workers


def forget(dask_worker: Worker) -> None:
    dask_worker.transfer_outgoing_log.clear()


def traffic(client: Client) -> tuple[int, int]:
    workers, clients = zip(*client.run(bytes_sent).values(), strict=True)
    return sum(workers), sum(clients)


def test_only_rows_next_to_borders_move(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    _, second = workers_of(client)
    blocks = in_turn(client, [np.full(20_000, float(at)) for at in range(8)])
    arguments: list[int] = []
    submit = Partition.submit

    def counting(partition: Partition, fn: Any, /, *args: Any) -> Any:
        arguments.append(len(pickle.dumps(args)))
        return submit(partition, fn, *args)

    with split(blocks) as parts:
        parts.resolve_item_indexes()
        monkeypatch.setattr(Partition, "submit", counting)
        client.run(forget)
        persisted = recipe()(parts, averages, N, 0.0, dtype=float).persist()
        wait(persisted)
        between_workers, to_client = traffic(client)
        # 14 sides of blocks with 6 rows of 8 bytes, and what Dask and pickle add for 2 tasks.
        assert between_workers == 0
        assert 14 * 6 * 8 <= to_client < 14 * 6 * 8 + 2 * 500
        assert sum(arguments) < 2 * 16 * 6 * 8 + 4 * 1000
        # Control: the counters see blocks that move.
        client.submit(np.sum, blocks[0], workers=[second]).result()
        assert traffic(client)[0] == 160_000
        blocks[1].result()
        assert traffic(client)[1] >= to_client + 160_000


def test_frames_and_masked_arrays(client: Client) -> None:
    frame = pd.DataFrame({"a": np.random.default_rng(3).normal(size=33)})
    frames = [
        client.submit(frame.iloc.__getitem__, rows, pure=False) for rows in cut(np.arange(33))
    ]

    def largest(rows: Any) -> Any:
        return rows.rolling(2 * N + 1, center=True).max().iloc[N:-N]

    made = recipe()(split(frames), largest, N, np.nan, meta=frame)
    expected = frame.rolling(2 * N + 1, center=True).max()
    pd.testing.assert_frame_equal(made.compute(), expected)

    values = np.ma.masked_greater(np.random.default_rng(5).normal(size=33), 1.0)
    starts = np.cumsum((0, *LENGTHS))
    masked = client.scatter(list(map(values.__getitem__, map(slice, starts, starts[1:]))))
    made = recipe()(split(masked), averages, N, 0.0, dtype=float).compute()
    edge = np.ma.zeros(N)
    expected = averages(concatenate([edge, values, edge]))
    assert 0 < made.mask.sum() < 33
    assert made.mask.tolist() == expected.mask.tolist()
    assert made.compressed().tobytes() == expected.compressed().tobytes()


def test_grids_are_refused(client: Client) -> None:
    grid = da.ones((8, 8), chunks=4).persist()
    with pytest.raises(InvalidArgumentError, match="cannot be read by rows"):
        recipe()(split(grid), averages, 1, 0.0, dtype=float)
