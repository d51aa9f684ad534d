"""Parquet files as collections: blocks of row groups, read here or by Dask workers."""

from __future__ import annotations

import operator
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("distributed")

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from distributed import Client, get_worker

from spliter import BlockLostError, InvalidArgumentError, UnsupportedCollectionError, gather, split
from spliter_backends.files import on_workers, open_blocks
from spliter_backends.files.opening import without_credentials

pytestmark = [pytest.mark.backend("files"), pytest.mark.backend("dask")]


def write(folder: Path, files: int = 4, rows: int = 30, group: int = 10) -> pd.DataFrame:
    """Write files whose values are the numbers of their rows; return all rows."""
    whole = pd.DataFrame({"row": np.arange(files * rows), "half": np.arange(files * rows) / 2})
    for at in range(files):
        part = whole[at * rows : (at + 1) * rows].reset_index(drop=True)
        part.to_parquet(folder / f"{at:02}.parquet", row_group_size=group)
    return whole


def total(partition: Any) -> int:
    return sum(int(block["row"].sum()) for block in partition)


def rows_of(partition: Any) -> list[tuple[int, int]]:
    found = np.concatenate([block["row"].to_numpy() for block in partition])
    return list(zip(partition.get_item_indexes().tolist(), found.tolist(), strict=True))


def place(blocks: Any, client: Client, where: str) -> Any:
    return on_workers(blocks, client) if where == "workers" else blocks


@pytest.fixture(params=["workers", "here"])
def where(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_row_groups_are_blocks_with_their_rows(client: Client, tmp_path: Path, where: str) -> None:
    whole = write(tmp_path)
    blocks = open_blocks(tmp_path, block_nbytes=1)
    assert blocks.grid.chunks == ((10,) * 12, (2,))
    with split(place(blocks, client, where)) as parts:
        assert len(parts.locations) == (2 if where == "workers" else 1)
        assert sum(gather(parts.map(total))) == whole["row"].sum()
        pairs = [pair for found in gather(parts.map(rows_of)) for pair in found]
        assert sorted(pairs) == [(row, row) for row in range(120)]
        assert parts.take([77, 3, 119])["row"].tolist() == [77, 3, 119]


def test_small_row_groups_and_files_form_one_block(tmp_path: Path) -> None:
    write(tmp_path)
    assert open_blocks(f"{tmp_path}/*.parquet").grid.chunks == ((120,), (2,))
    one = open_blocks(tmp_path / "00.parquet")
    two = open_blocks(tmp_path, block_nbytes=int(one.nbytes[0]) * 2)
    assert two.grid.chunks[0] == (60, 60)
    assert two.read(1)["row"].tolist() == list(range(60, 120))
    assert two.read(1).index.tolist() == list(range(60))


def test_columns_and_filters_reach_pyarrow(client: Client, tmp_path: Path, where: str) -> None:
    write(tmp_path)
    blocks = open_blocks(tmp_path, columns=["row"], filters=[("half", ">=", 50.0)], block_nbytes=1)
    with split(place(blocks, client, where)) as parts:
        assert parts.grid.extent == (None, 1)
        assert sum(gather(parts.map(total))) == sum(range(100, 120))
        parts.resolve_item_indexes()
        found = [pair for pairs in gather(parts.map(rows_of)) for pair in pairs]
        assert sorted(found) == list(enumerate(range(100, 120)))


def test_materialized_columns_schedules_and_teams(
    client: Client, tmp_path: Path, where: str
) -> None:
    whole = write(tmp_path)
    collection = place(open_blocks(tmp_path, block_nbytes=1), client, where)
    with split(collection, materialize=True) as parts:
        for _ in range(2):
            found = gather(parts.map(lambda part: part.materialize(columns=["half"]).sum()))
            assert float(np.sum(found)) == whole["half"].sum()
    with split(collection, schedule="FAC2") as parts:
        assert parts.map_reduce(total, operator.add).result() == whole["row"].sum()


def test_workers_steal_stored_blocks(client: Client, tmp_path: Path) -> None:
    whole = write(tmp_path)
    collection = on_workers(open_blocks(tmp_path, block_nbytes=1), client)
    with split(collection, schedule="SS", steal=True) as parts:
        assert sum(gather(parts.map(total))) == whole["row"].sum()


def test_passes_read_the_same_blocks_at_the_same_worker(client: Client, tmp_path: Path) -> None:
    write(tmp_path)
    collection = on_workers(open_blocks(tmp_path, block_nbytes=1), client)
    seen = []
    for _ in range(3):
        with split(collection) as parts:
            seen.append(gather(parts.map(lambda p: (get_worker().address, p.get_indexes()))))
    assert seen[0] == seen[1] == seen[2]


TYPES = {
    "text": pd.Series(["a", None, "ü"], dtype="str"),
    "category": pd.Series(["x", "y", "x"], dtype="category"),
    "zone": pd.Series(pd.date_range("2026-01-01", periods=3, tz="Europe/Madrid")),
    "nullable": pd.Series([1, None, 3], dtype="Int64"),
    "flag": pd.Series([True, False, True]),
    "small": pd.Series([1, 2, 3], dtype="int8"),
    "real": pd.Series([1.5, np.nan, 2.5], dtype="float32"),
    "day": pd.Series(pd.to_timedelta([1, 2, 3], unit="D")),
}


@pytest.mark.parametrize("name", TYPES)
def test_types_survive(tmp_path: Path, name: str) -> None:
    written = pd.DataFrame({name: TYPES[name]})
    written.to_parquet(tmp_path / "a.parquet")
    pd.testing.assert_frame_equal(
        open_blocks(tmp_path).read(0), pd.read_parquet(tmp_path / "a.parquet")
    )


def test_stored_index_and_tables_of_arrow(tmp_path: Path) -> None:
    written = pd.DataFrame({"x": [1, 2]}, index=pd.Index(["a", "b"], name="key"))
    written.to_parquet(tmp_path / "a.parquet")
    blocks = open_blocks(tmp_path)
    assert blocks.grid.chunks == ((2,), (1,))
    pd.testing.assert_frame_equal(blocks.read(0), pd.read_parquet(tmp_path / "a.parquet"))
    with split(open_blocks(tmp_path, as_arrow=True)) as parts:
        (found,) = gather(parts.map(lambda part: [block.column_names for block in part]))
    assert found == [["x", "key"]]


def test_columns_in_another_order_are_matched_by_name(tmp_path: Path) -> None:
    pd.DataFrame({"x": [1, 2], "y": [10, 20]}).to_parquet(tmp_path / "a.parquet")
    pd.DataFrame({"y": [30], "x": [3]}).to_parquet(tmp_path / "b.parquet")
    block = open_blocks(tmp_path).read(0)
    assert block.to_dict("list") == {"x": [1, 2, 3], "y": [10, 20, 30]}


def test_empty_files(client: Client, tmp_path: Path, where: str) -> None:
    empty = pd.DataFrame({"row": np.array([], dtype="int64")})
    empty.to_parquet(tmp_path / "a.parquet")
    with split(place(open_blocks(tmp_path), client, where)) as parts:
        assert gather(parts.map(total)) == [0]
    with pq.ParquetWriter(tmp_path / "a.parquet", pa.schema([("row", pa.int64())])):
        pass  # not even a row group
    assert len(open_blocks(tmp_path).read(0)) == 0
    pd.DataFrame({"row": [5]}).to_parquet(tmp_path / "b.parquet")
    assert open_blocks(tmp_path).read(0)["row"].tolist() == [5]


def test_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    pd.DataFrame({"x": [1]}).to_parquet(tmp_path / "a.parquet")
    for other in ({"x": [1.5]}, {"x": [1], "y": [2]}, {"z": [1]}):
        pd.DataFrame(other).to_parquet(tmp_path / "b.parquet")
        with pytest.raises(InvalidArgumentError, match=r"(?s)b\.parquet has other.*x: int64"):
            open_blocks(tmp_path)
    (tmp_path / "b.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:-9])
    with pytest.raises(InvalidArgumentError, match=r"b\.parquet is not a whole Parquet file"):
        open_blocks(tmp_path)
    pd.DataFrame({"deep": [[1, 2]], "x": [1]}).to_parquet(tmp_path / "c.parquet")
    with pytest.raises(InvalidArgumentError, match=r"\['deep'\] are nested"):
        open_blocks(tmp_path / "c.parquet")
    assert open_blocks(tmp_path / "c.parquet", columns=["x"]).read(0)["x"].tolist() == [1]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"columns": ["x", "no"]}, r"there are no columns \['no'\]"),
        ({"columns": "x"}, r"columns=\['x'\]"),
        ({"columns": ["x", "x"]}, "repeat a name"),
        ({"filters": [("no", ">", 1)]}, "do not fit the files"),
        ({"filters": [("x", ">", "text")]}, "do not fit the files"),
        ({"block_nbytes": 0}, "block_nbytes"),
    ],
)
def test_wrong_arguments(tmp_path: Path, arguments: dict[str, Any], complaint: str) -> None:
    pd.DataFrame({"x": [1]}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(InvalidArgumentError, match=complaint):
        open_blocks(tmp_path, **arguments)


def test_paths_that_name_no_data_set(client: Client, tmp_path: Path) -> None:
    nowhere: list[Any] = [tmp_path, f"{tmp_path}/*.parquet", tmp_path / "a.parquet", []]
    for path in nowhere:
        with pytest.raises(InvalidArgumentError, match="no files match"):
            open_blocks(path)
    for year in ("year=1", "year=2"):
        (tmp_path / year).mkdir()
        pd.DataFrame({"x": [1]}).to_parquet(tmp_path / year / "a.parquet")
    with pytest.raises(InvalidArgumentError, match="partitioned folders"):
        open_blocks(tmp_path)
    (tmp_path / "year=1" / "b.csv").write_text("x\n1\n")
    with pytest.raises(InvalidArgumentError, match=r"\['\.csv', '\.parquet'\]"):
        open_blocks(tmp_path)
    with pytest.raises(UnsupportedCollectionError, match="wrap each"):
        split(on_workers(open_blocks(tmp_path / "year=1" / "a.parquet"), client), [[1]])


@pytest.mark.parametrize("change", ["grown", "removed"])
def test_a_file_that_changes_between_passes_is_lost(
    client: Client, tmp_path: Path, where: str, change: str
) -> None:
    write(tmp_path)
    with split(place(open_blocks(tmp_path, block_nbytes=1), client, where)) as parts:
        gather(parts.map(total))
        path = tmp_path / "03.parquet"
        if change == "removed":
            path.unlink()
        else:
            pd.DataFrame({"row": range(99), "half": range(99)}).to_parquet(path)
        with pytest.raises(BlockLostError, match=r"03\.parquet was removed or has changed"):
            gather(parts.map(total))


def test_secrets_stay_out_of_messages(tmp_path: Path) -> None:
    pd.DataFrame({"x": [1]}).to_parquet(tmp_path / "a.parquet")
    blocks = open_blocks(f"file://{tmp_path}", storage_options={"token": "secret"})
    assert "secret" not in repr(blocks) and "secret" not in repr(on_workers(blocks))
    assert without_credentials("s3://me:secret@host/x?key=secret") == "s3://host/x"
    assert pickle.loads(pickle.dumps(blocks)).read(0)["x"].tolist() == [1]
