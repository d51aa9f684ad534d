"""xarray objects, split along a dimension: on a cluster, and in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import dask
import numpy as np
import pytest

pytest.importorskip("xarray")
pytest.importorskip("distributed")

import xarray as xr
from distributed import Client

from spliter import (
    AlignmentError,
    InvalidArgumentError,
    LazyCollectionError,
    Split,
    UnsupportedCollectionError,
    batches,
    gather,
    split,
)
from spliter.backend import concatenate, count_rows, has_rows
from spliter_backends.xarray import along
from tests.dask_workers import workers_of

pytestmark = [pytest.mark.backend("xarray"), pytest.mark.backend("dask")]


@pytest.fixture(scope="module")
def cluster(dask_cluster: Any) -> Iterator[Client]:
    # With a default client, what is in this process would have to go to its cluster.
    with Client(dask_cluster, set_as_default=False) as client:
        yield client


@pytest.fixture(params=["dask", "here"])
def client(request: pytest.FixtureRequest) -> Client | None:
    """Return a client if chunks are to be on a cluster, else nothing."""
    return request.getfixturevalue("cluster") if request.param == "dask" else None


def persisted(data: Any, client: Client | None) -> Any:
    return data.persist(scheduler="threads") if client is None else client.persist(data)


def measurements() -> Any:
    """Return an array whose values tell where they are: 10000 time + 100 lat + lon."""
    time, lat, lon = np.arange(10), np.arange(6), np.arange(4)
    values = 10_000 * time[:, None, None] + 100 * lat[:, None] + lon
    return xr.DataArray(
        values,
        dims=("time", "lat", "lon"),
        coords={
            "time": np.datetime64("2020-01-01", "ns") + time * np.timedelta64(1, "D"),
            "lat": lat * 0.5,
            "lon": lon * 2.0,
            "month": ("time", time % 3),
            "height": (("lat", "lon"), np.add.outer(lat, lon)),
            "scalar": 7,
        },
        name="value",
        attrs={"units": "K"},
    )


def seen(partition: Any) -> list[tuple[tuple[int, ...], Any]]:
    return list(partition.items())


def incoming(dask_worker: Any) -> int:
    return int(dask_worker.state.transfer_incoming_count_total)


def all_blocks(parts: Split) -> dict[tuple[int, ...], Any]:
    return dict(pair for pairs in gather(parts.map(seen)) for pair in pairs)


@pytest.mark.parametrize("dim", ["time", "lat", "lon"])
def test_blocks_are_what_isel_gives(client: Client | None, dim: str) -> None:
    whole = measurements()
    data = persisted(whole.chunk(time=4, lat=3, lon=-1), client)
    others = [other for other in whole.dims if other != dim]
    with split(along(data, dim)) as parts:
        blocks = all_blocks(parts)
        rows = np.concatenate([part.get_item_indexes() for part in parts])
    sizes = {"time": (4, 4, 2), "lat": (3, 3), "lon": (4,)}
    assert parts.grid.chunks == (sizes[dim], *(sizes[other] for other in others))
    assert len(blocks) == 6
    assert set(rows.tolist()) == set(range(whole.sizes[dim]))
    for index, block in blocks.items():
        assert block.dims == (dim, *others)
        bounds = {}
        for name, at in zip((dim, *others), index, strict=True):
            start = sum(sizes[name][:at])
            bounds[name] = slice(start, start + sizes[name][at])
        xr.testing.assert_identical(block, whole.isel(bounds).transpose(dim, ...))


def test_array_by_itself_is_split_along_its_first_dimension(client: Client | None) -> None:
    data = persisted(measurements().chunk(time=3), client)
    with split(data, partitions_per_location=1) as parts:
        assert parts.grid.chunks == ((3, 3, 3, 1), (6,), (4,))


def test_nothing_is_moved_and_values_are_shared(cluster: Client) -> None:
    # Without the coordinates that xarray cuts into chunks of their own.
    whole = measurements().drop_vars(["month", "height"])
    data = cluster.persist(whole.chunk(time=1, lat=3))
    before = sum(cluster.run(incoming).values())
    with split(along(data, "time")) as parts:
        assert set(parts.locations) <= set(workers_of(cluster))
        total = sum(gather(parts.map(lambda part: sum(int(block.sum()) for block in part))))
        assert parts.moved.blocks == 0
    assert total == int(measurements().sum())
    assert sum(cluster.run(incoming).values()) == before
    # The control: this moves one.
    future = cluster.futures_of(data)[0]
    (held,) = cluster.who_has([future])[future.key]
    other = next(at for at in workers_of(cluster) if at != held)
    cluster.submit(np.sum, future, workers=[other], pure=False).result()
    assert sum(cluster.run(incoming).values()) > before


def test_datasets_keep_variables_coordinates_and_attributes(client: Client | None) -> None:
    whole = xr.Dataset(
        {
            "t": measurements(),
            "rain": ("time", np.arange(10.0), {"units": "mm"}),
            "land": (("lat", "lon"), np.ones((6, 4))),
        },
        attrs={"source": "made up"},
    )
    data = persisted(whole.chunk(time=4), client)
    with split(along(data, "time"), partitions_per_location=1) as parts:
        blocks = all_blocks(parts)
    assert sorted(index[0] for index in blocks) == [0, 1, 2]
    for index, block in blocks.items():
        expected = whole.isel(time=slice(index[0] * 4, index[0] * 4 + 4)).transpose("time", ...)
        xr.testing.assert_identical(block, expected)


def test_chunked_coordinates_go_along(client: Client | None) -> None:
    whole = measurements().assign_coords(quality=("time", np.arange(10) * 11))
    data = persisted(whole.chunk(time=5).assign_coords(quality=whole.quality.chunk(time=5)), client)
    assert data.quality.chunks is not None
    with split(along(data, "time")) as parts:
        for index, block in all_blocks(parts).items():
            xr.testing.assert_identical(
                block, whole.isel(time=slice(index[0] * 5, index[0] * 5 + 5))
            )


def test_variables_elsewhere_are_brought_and_counted(cluster: Client) -> None:
    workers = workers_of(cluster)
    large, small = np.zeros((4, 50)), np.arange(4)
    t = xr.DataArray(large, dims=("time", "x")).chunk(time=2)
    n = xr.DataArray(small, dims="time").chunk(time=2)
    data = xr.Dataset(
        {
            "t": t.copy(data=cluster.persist(t.data, workers=workers[0])),
            "n": n.copy(data=cluster.persist(n.data, workers=workers[1])),
        }
    )
    with split(along(data, "time")) as parts:
        assert parts.locations == (workers[0],)
        assert parts.moved.aligned_blocks == 2
        assert sum(int(block.n.sum()) for block in all_blocks(parts).values()) == 6


def test_materialized_partitions_are_one_object(client: Client | None) -> None:
    whole = measurements()
    data = persisted(whole.chunk(time=1), client)
    with split(along(data, "time"), partitions_per_location=1, materialize=True) as parts:
        counts = gather(parts.map(lambda part: len(list(part))))
        ones = gather(parts.map(lambda part: part.materialize()))
        rows = [part.get_item_indexes() for part in parts]
    assert counts == [1] * len(parts)
    for one, at in zip(ones, rows, strict=True):
        xr.testing.assert_identical(one, whole.isel(time=at))


def as_dataset(whole: Any) -> Any:
    """Return a Dataset whose variables are not all along latitude."""
    daily = whole.isel(lat=0, drop=True).drop_vars("height")
    return xr.Dataset({"value": whole, "daily": daily})


@pytest.mark.parametrize("make", [lambda whole: whole, as_dataset], ids=["array", "dataset"])
@pytest.mark.parametrize("wanted", [[3], [5, 0, -1, 5], []])
def test_rows_by_their_number(client: Client | None, make: Any, wanted: list[int]) -> None:
    whole = make(measurements())
    data = persisted(whole.chunk(lat=2), client)
    with split(along(data, "lat")) as parts:
        found = parts.take(wanted).compute()
        with pytest.raises(InvalidArgumentError, match="column"):
            parts.take(wanted, columns=["value"])
    expected = whole.isel(lat=np.array(wanted, np.int64)).transpose("lat", ...)
    xr.testing.assert_identical(found, expected)


def batches_of(partition: Any, nbytes: int) -> list[Any]:
    return list(partition.batches(nbytes))


@pytest.mark.parametrize("make", [lambda whole: whole, as_dataset], ids=["array", "dataset"])
@pytest.mark.parametrize(("nbytes", "most"), [(1, 1), (700, 2), (10_000, 6)])
def test_batches(client: Client | None, make: Any, nbytes: int, most: int) -> None:
    """A row of one latitude has 320 bytes, and a few in its coordinates."""
    whole = make(measurements())
    data = persisted(whole.chunk(lat=3), client)
    with split(along(data, "lat"), partitions_per_location=1) as parts:
        found = [one for made in gather(parts.map(batches_of, nbytes)) for one in made]
    assert max(batch.sizes["lat"] for batch in found) <= most
    for batch in found:
        xr.testing.assert_identical(batch.compute(), whole.sel(lat=batch.lat).transpose("lat", ...))
    assert sorted(lat for batch in found for lat in batch.lat.values) == whole.lat.values.tolist()


def test_arrays_by_themselves_have_their_rows_first() -> None:
    whole = measurements()
    cut = [whole[:4], whole[4:5], whole[5:]]
    found = list(batches(cut, nbytes=500))
    assert all(batch.nbytes <= 500 for batch in found)
    for blocks in (cut, found):
        xr.testing.assert_identical(concatenate(blocks), whole)
    with pytest.raises(InvalidArgumentError, match="first dimensions differ"):
        concatenate([whole, whole.transpose("lat", ...)])
    with pytest.raises(InvalidArgumentError, match="'exact'"):
        concatenate([whole, whole.assign_coords(lat=whole.lat + 1)])


@pytest.mark.parametrize(
    "use",
    [count_rows, lambda block: list(batches([block])), lambda block: concatenate([block] * 2)],
)
def test_a_dataset_by_itself_does_not_say_what_its_rows_are(use: Any) -> None:
    block = measurements().to_dataset()
    assert not has_rows(block)
    with pytest.raises(
        InvalidArgumentError, match=r"does not say .*split\(along\(dataset, dim\)\)"
    ):
        use(block)


def test_partitions_carry_the_labels_of_their_own_rows_only(cluster: Client) -> None:
    import pickle

    long = xr.DataArray(np.zeros(100_000), dims="x", coords={"x": np.arange(100_000) * 1.5})
    data = cluster.persist(long.chunk(x=10_000))
    with split(along(data, "x")) as parts:
        sizes = [len(pickle.dumps(part)) for part in parts]
    assert sum(sizes) < 1.5 * 100_000 * 8


def test_lazy_chunks_are_computed_if_asked(client: Client | None) -> None:
    """With a cluster that is the default client's."""
    lazy = measurements().chunk(time=4) * 2
    with ExitStack() as stack:
        if client is not None:
            stack.enter_context(client.as_current())
        parts = stack.enter_context(split(along(lazy, "time"), persist=True))
        assert (parts.locations == ("local",)) == (client is None)
        sums = gather(parts.map(lambda part: sum(int(block.sum()) for block in part)))
    assert sum(sums) == 2 * int(measurements().sum())


def test_lazy_chunks_are_computed_after_the_last_client_was_closed() -> None:
    """Clients closed in the order in which they were made leave their scheduler as the setting."""
    lazy = measurements().chunk(time=4) * 2
    with (
        dask.config.set(scheduler="dask.distributed"),
        split(along(lazy, "time"), persist=True) as parts,
    ):
        sums = gather(parts.map(lambda part: sum(int(block.sum()) for block in part)))
    assert sum(sums) == 2 * int(measurements().sum())


def test_what_cannot_be_split_says_why(client: Client | None) -> None:
    whole = measurements().drop_vars(["month", "height"])  # xarray would compute and compare them
    lazy = whole.chunk(time=4)
    data = persisted(lazy, client)
    with pytest.raises(InvalidArgumentError, match="no dimension 'depth'"):
        along(data, "depth")
    with pytest.raises(InvalidArgumentError, match="takes a DataArray or a Dataset"):
        along(whole.values, "time")
    with pytest.raises(UnsupportedCollectionError, match=r"chunk\(\{'time': n\}\)"):
        split(along(whole, "time"))
    with pytest.raises(LazyCollectionError, match="persist"):
        split(along(lazy * 2, "time"))
    with pytest.raises(LazyCollectionError, match="persist"):
        split(along(data + 1, "time"))
    with pytest.raises(InvalidArgumentError, match="needs the dimension to split along"):
        split(data.to_dataset())
    with pytest.raises(UnsupportedCollectionError, match="in one Dataset"):
        split(along(data, "time"), along(data, "time"))
    differing = xr.Dataset({"a": data, "b": persisted(whole.chunk(time=5), client)})
    with pytest.raises(AlignmentError, match="unify_chunks"):
        split(along(differing, "time"))
    in_memory = xr.Dataset({"a": data, "b": whole})
    with pytest.raises(UnsupportedCollectionError, match="'b' is not chunked"):
        split(along(in_memory, "time"))
    flat = whole.isel(lat=0, drop=True)
    cut = xr.Dataset({"a": whole.chunk(time=4, lat=3), "b": flat.chunk(time=4)})
    with pytest.raises(InvalidArgumentError, match="would be in several blocks"):
        split(along(persisted(cut, client), "time"))
