"""``map_blocks`` infers what a function returns, and makes Dask collections of the same kind."""

from __future__ import annotations

import functools
import gc
import re
from collections.abc import Callable, Mapping
from typing import Any

import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask import compute
from distributed import Client
from scipy.sparse import csr_matrix

from spliter import InvalidArgumentError, gather, split
from spliter_apps import histogramdd
from tests.dask_backend.programs import spread
from tests.dask_backend.test_dask_split import held
from tests.waiting import wait_until

pytestmark = [pytest.mark.backend("dask"), pytest.mark.timeout(120)]

FRAME = pd.DataFrame(
    {"a": np.arange(60), "b": np.arange(60) / 4, "c": pd.Categorical(["x", "y", "z"] * 20)},
    index=np.arange(100, 160),
)


@pytest.fixture
def frame(client: Client) -> Any:
    return dd.from_pandas(FRAME, npartitions=5).persist()


def test_blocks_are_freed_with_the_collection(client: Client) -> None:
    """The first test: the client keeps the errors of later ones, and what these refer to."""
    made = split(dd.from_pandas(FRAME, npartitions=5).persist()).map_blocks(pd.DataFrame.copy)
    assert len(made.compute()) == 60
    del made
    gc.collect()  # Dask's expressions refer to each other
    wait_until(lambda: held(client, "map_over") == 0)


def test_dataframe_of_a_dataframe(frame: Any) -> None:
    def enriched(block: Any, factor: float) -> Any:
        return block.assign(scaled=block["b"] * factor, long=block["c"].astype(str).str.len())

    made = split(frame).map_blocks(enriched, factor=3.0)
    assert isinstance(made, dd.DataFrame)
    expected = enriched(FRAME, 3.0)
    assert made.npartitions == frame.npartitions
    assert list(made.columns) == list(expected.columns)
    assert made.dtypes["scaled"] == expected.dtypes["scaled"]
    pd.testing.assert_frame_equal(made.compute(), frame.map_partitions(enriched, 3.0).compute())
    # Like any other: further steps, and a Split once it is persisted.
    assert made["scaled"].sum().compute() == pytest.approx(expected["scaled"].sum())
    with split(made.persist()) as parts:
        assert parts.nblocks == frame.npartitions


def test_series_and_index_of_a_dataframe(frame: Any) -> None:
    parts = split(frame)
    series = parts.map_blocks(lambda block: block["a"] + 1)
    assert isinstance(series, dd.Series)
    pd.testing.assert_series_equal(series.compute(), FRAME["a"] + 1)
    index = parts.map_blocks(lambda block: block.index)
    assert isinstance(index, dd.Index)
    assert index.compute().tolist() == FRAME.index.tolist()


def test_arrays_of_a_dataframe(frame: Any) -> None:
    made = split(frame).map_blocks(lambda block: block[["a", "b"]].to_numpy())
    assert isinstance(made, da.Array)
    assert (made.dtype, made.shape[1]) == (np.dtype(float), 2)
    np.testing.assert_array_equal(made.compute(), FRAME[["a", "b"]].to_numpy())


def test_arrays_of_arrays(client: Client) -> None:
    x = da.arange(120, chunks=30).reshape((40, 3)).persist()
    y = da.ones(40, chunks=10, dtype=np.float32).persist()
    made = split(x).map_blocks(lambda block: block @ np.ones((3, 2), dtype=int))
    assert (made.dtype, made.shape, made.chunks[0]) == (np.dtype(int), (40, 2), x.chunks[0])
    np.testing.assert_array_equal(made.compute(), x.compute() @ np.ones((3, 2), dtype=int))
    pairs = split(x, y).map_blocks(lambda pair: pair[0].sum(axis=1) * pair[1])
    assert (pairs.dtype, pairs.shape) == (np.dtype(float), (40,))


def test_meta_says_what_cannot_be_inferred(frame: Any) -> None:
    def picky(block: Any) -> Any:
        assert len(block) > 5, "too short"
        return block[["a"]]

    parts = split(frame)
    with pytest.raises(InvalidArgumentError, match=r"(?s)too short.*or an empty result of it"):
        parts.map_blocks(picky)
    made = parts.map_blocks(picky, meta=FRAME[["a"]])
    pd.testing.assert_frame_equal(made.compute(), FRAME[["a"]])
    for collection in (spread(Client.current(), 4), db.from_sequence([1, 2], 2).persist()):
        with pytest.raises(InvalidArgumentError, match="cannot infer what the function returns"):
            split(collection).map_blocks(np.square)


def test_results_that_are_not_as_expected_are_refused_at_the_task(frame: Any) -> None:
    parts = split(frame)
    rows = np.zeros((1, 2))
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (lambda block: block[["b"]], {"meta": FRAME[["a"]]}, r"block \(\d,\) has columns \['b'\]"),
        (lambda block: block["b"], {"meta": FRAME[["a"]]}, "returned a Series for block"),
        (lambda block: block["b"], {"dtype": float}, "returned a Series .* dtype= is for arrays"),
        (lambda block: block.to_numpy(), {"dtype": float}, r"pass trailing_shape=\(3,\)"),
        (lambda block: block[["a"]].to_numpy(), {"meta": rows}, r"rows of shape \(2,\)"),
    ]
    for fn, options, message in cases:
        with pytest.raises(InvalidArgumentError, match=message):
            parts.map_blocks(fn, **options).compute()
    with pytest.raises(InvalidArgumentError, match="meta already determines"):
        parts.map_blocks(np.sqrt, meta=rows, dtype=float)
    with pytest.raises(InvalidArgumentError, match="needs a dtype"):
        parts.map_blocks(np.sqrt, trailing_shape=(2,))


IMAGE = np.arange(600.0).reshape(20, 30)


def test_grids_of_several_axes(client: Client) -> None:
    image = da.from_array(IMAGE, chunks=(7, 8)).persist()
    assert image.numblocks == (3, 4)
    made = split(image).map_blocks(np.sqrt)
    assert (made.chunks, made.dtype) == (image.chunks, image.dtype)
    np.testing.assert_array_equal(made.compute(), np.sqrt(IMAGE))
    signs = split(made.persist()).map_blocks(lambda block: block > 3)
    np.testing.assert_array_equal(signs.compute(), np.sqrt(IMAGE) > 3)
    # Colours along an axis of one block may become others, or none.
    pixels = da.from_array(np.stack([IMAGE, -IMAGE, IMAGE], axis=2), chunks=(7, 8, 3)).persist()
    grey = split(pixels).map_blocks(lambda block: block.mean(axis=2))
    np.testing.assert_array_equal(grey.compute(), pixels.mean(axis=2).compute())
    weights = da.ones(20, chunks=7).persist()
    scaled = split(image, weights).map_blocks(lambda pair: pair[0] * pair[1][:, None] * 2)
    np.testing.assert_array_equal(scaled.compute(), IMAGE * 2)


def test_functions_that_change_the_blocks_of_a_grid_are_refused(client: Client) -> None:
    parts = split(da.from_array(IMAGE, chunks=(7, 8)).persist())
    with pytest.raises(InvalidArgumentError, match=r"at least 2 axes.* got shape \(1,\)"):
        parts.map_blocks(lambda block: block.sum(axis=1))
    with pytest.raises(InvalidArgumentError, match="an array, as the collection has blocks along"):
        parts.map_blocks(pd.DataFrame)
    with pytest.raises(InvalidArgumentError, match=r"shape \(\d, 1\).*keep the sizes along these"):
        parts.map_blocks(lambda block: block[:, :1]).compute()
    with pytest.raises(InvalidArgumentError, match="rows='unknown' needs blocks of whole rows"):
        parts.map_blocks(np.sqrt, rows="unknown")


def test_masked_and_sparse_blocks_of_a_grid(client: Client) -> None:
    masked = da.ma.masked_less(da.from_array(IMAGE, chunks=(7, 8)), 300).persist()
    made = split(masked).map_blocks(np.negative).compute()
    assert made.mask.sum() == 300
    assert made.sum() == -IMAGE[IMAGE >= 300].sum()
    sparse = split(da.from_array(IMAGE, chunks=(7, 8)).map_blocks(csr_matrix).persist())
    doubled = sparse.map_blocks(lambda block: block * 2)
    np.testing.assert_array_equal(doubled.compute().toarray(), IMAGE * 2)


def test_functions_that_select_rows(frame: Any) -> None:
    parts = split(frame)
    for select in (lambda block: block[block["a"] % 7 == 0], lambda block: block.iloc[1:-1]):
        with pytest.raises(InvalidArgumentError, match="pass rows='unknown' if it selects rows"):
            parts.map_blocks(select).compute()
        made = parts.map_blocks(select, rows="unknown")
        expected = frame.map_partitions(select)
        pd.testing.assert_frame_equal(made.compute(), expected.compute())
        assert made.divisions == frame.divisions
        assert made.loc[103:130]["a"].sum().compute() == expected.loc[103:130]["a"].sum().compute()
    numbers = parts.map_blocks(lambda block: block["b"].to_numpy()[:1], rows="unknown")
    assert np.isnan(numbers.shape[0])
    assert numbers.compute().tolist() == FRAME["b"][::12].tolist()
    with pytest.raises(InvalidArgumentError, match=r"rows must be .* got 3; .* functools.partial"):
        parts.map_blocks(pd.DataFrame.head, rows=3)  # type: ignore[arg-type]


def test_meta_as_dask_takes_it(frame: Any) -> None:
    parts = split(frame)
    series = parts.map_blocks(lambda block: block["a"] / 2, meta=("a", "f8"))
    assert (series.name, series.dtype, series.divisions) == ("a", np.float64, frame.divisions)
    pd.testing.assert_series_equal(series.compute(), FRAME["a"] / 2)
    for meta in ({"a": "i8", "b": "f8"}, [("a", "i8"), ("b", "f8")]):
        made = parts.map_blocks(lambda block: block[["a", "b"]], meta=meta)
        assert made.divisions == frame.divisions
        pd.testing.assert_frame_equal(made.compute(), FRAME[["a", "b"]])
    with pytest.raises(InvalidArgumentError, match=r"neither \(name, dtype\) nor"):
        parts.map_blocks(pd.DataFrame.copy, meta=("a", "no dtype"))
    with pytest.raises(InvalidArgumentError, match="meta='f8' is no example"):
        parts.map_blocks(pd.DataFrame.copy, meta="f8")


def test_divisions_are_kept_only_with_the_index(client: Client, frame: Any) -> None:
    parts = split(frame)
    assert parts.map_blocks(pd.DataFrame.copy).divisions == frame.divisions
    numbered = dd.from_pandas(FRAME.reset_index(), npartitions=5).persist()
    for collection in (frame, numbered):
        fresh = split(collection).map_blocks(lambda block: block.reset_index(drop=True))
        assert not fresh.known_divisions
        assert fresh.compute().index.tolist() == list(range(12)) * 5
    wrong = parts.map_blocks(lambda block: block.set_axis(block.index + 1), meta=FRAME)
    with pytest.raises(InvalidArgumentError, match=r"block \(\d,\).*clear_divisions"):
        wrong.compute()
    by_kind = functools.partial(parts.map_blocks, lambda block: block.groupby("c").sum())
    with pytest.raises(InvalidArgumentError, match=r"\(x, ...\) is not in its divisions"):
        by_kind(meta={"a": "i8", "b": "f8"}, rows="unknown").compute()
    assert by_kind(rows="unknown").compute()["a"].sum() == FRAME["a"].sum()
    cleared = split(frame.clear_divisions().persist())
    shifted = cleared.map_blocks(lambda block: block.set_axis(block.index + 1), meta=FRAME)
    assert shifted.compute().index.tolist() == [label + 1 for label in FRAME.index]


def differing(client: Client, blocks: Any, kind: str) -> Any:
    """Return blocks at several workers as a collection of a kind."""
    if kind == "futures":
        workers = sorted(client.nthreads())
        return [
            client.submit(lambda block: block, block, workers=workers[at % 2], pure=False)
            for at, block in enumerate(blocks)
        ]
    if kind == "list":
        return list(blocks)
    return dd.from_map(lambda at: blocks[at], range(len(blocks)), meta=blocks[0][:0]).persist()


@pytest.mark.parametrize("kind", ["futures", "list", "from_map"])
def test_blocks_with_other_columns_are_refused(client: Client, kind: str) -> None:
    numbers = FRAME[["a", "b"]]
    arrays: dict[str, Any] = {"dtype": float, "trailing_shape": (2,)}
    for other in (numbers[["b", "a"]], numbers.rename(columns={"b": "x"})):
        parts = split(differing(client, [numbers[:5], other[:0], other[5:]], kind))
        message = re.escape(f"['a', 'b'] and {list(other)} in block (2")
        with pytest.raises(InvalidArgumentError, match=message):
            getattr(parts.map_blocks(pd.DataFrame.to_numpy, **arrays), "compute", list)()


USES: Mapping[str, Callable[[Any], Any]] = {
    "map_blocks": lambda parts: compute(parts.map_blocks(lambda block: block * 2)),
    "materialize": lambda parts: gather(parts.map(lambda part: part.materialize().sum())),
    "take": lambda parts: parts.take([0, 19]),
    "histogramdd": lambda parts: histogramdd(parts, 3),
}


@pytest.mark.parametrize("use", USES)
def test_columns_are_selected_as_advised(client: Client, use: str) -> None:
    numbers = FRAME[["a", "b"]]
    # Three for two workers, so that one has two of them.
    blocks = [numbers[:9].assign(d=1), numbers[["b", "a"]][9:], numbers[:5].assign(e=1)]
    frame = differing(client, blocks, "from_map")
    with pytest.raises(InvalidArgumentError, match="select them by name") as caught:
        USES[use](split(frame, partitions_per_location=1))
    for advised, given in (
        (r"frame\.map_partitions\(.*?\]\]\)", {"frame": frame}),
        (r"\[block\[.*? for block in blocks\]", {"blocks": blocks}),
    ):
        (found,) = re.findall(advised, str(caught.value))
        same = eval(found, given)
        USES[use](split(same if isinstance(same, list) else same.persist()))


def test_columns_of_results_are_matched_by_name(frame: Any) -> None:
    def turned(block: Any) -> Any:
        return block[["b", "a"]] if block["a"].iloc[0] else block[["a", "b"]]

    made = split(frame).map_blocks(turned, meta=FRAME[["a", "b"]])
    pd.testing.assert_frame_equal(made.compute(), FRAME[["a", "b"]])
    assert made.to_dask_array(lengths=True).compute()[-1].tolist() == [59.0, 59 / 4]


def test_dtypes_of_results(client: Client, frame: Any) -> None:
    """Dask copies blocks into the dtype of the first one, and sums in that of the metadata."""

    def halved_later(block: Any) -> Any:
        return block if block[0] == 0 else block / 4

    numbers = da.arange(12, chunks=4).persist()
    parts = split(numbers)
    with pytest.raises(InvalidArgumentError, match=r"dtype float64, expected int64; pass dtype="):
        parts.map_blocks(halved_later, dtype=np.int64).compute()
    made = parts.map_blocks(halved_later, dtype=np.float64)
    assert {block.dtype for block in compute(*made.to_delayed())} == {np.dtype(float)}
    assert made.compute().tolist() == [0, 1, 2, 3, *(np.arange(4, 12) / 4)]
    swapped = parts.map_blocks(lambda block: block.astype(">i8"), dtype=np.int64)
    assert swapped.sum().compute() == 66
    names = parts.map_blocks(lambda block: block.astype(str), dtype="U24")
    assert names.compute().tolist() == [str(at) for at in range(12)]
    with pytest.raises(InvalidArgumentError, match="dtype <U2, expected <U1"):
        parts.map_blocks(lambda block: np.array([str(at) for at in block])).compute()

    def missing_later(block: Any) -> Any:
        return block[["a"]].where(block["a"] != 30) if block["a"].iloc[0] else block[["a"]]

    with pytest.raises(InvalidArgumentError, match="dtype float64, expected int64; pass that as"):
        split(frame).map_blocks(missing_later).compute()
    texts = dd.from_pandas(pd.DataFrame({"s": ["x", "y"] * 6}), npartitions=3).persist()
    coded = split(texts).map_blocks(lambda block: block["s"].map({"x": 1, "y": 2}))
    assert coded.sum().compute() == 18  # integers, though the example has none of these texts
    mended = split(frame).map_blocks(missing_later, meta={"a": "f8"})
    assert mended["a"].isna().sum().compute() == 1


def test_masked_results_of_some_blocks(client: Client) -> None:
    def masked_later(block: Any) -> Any:
        return np.ma.masked_greater(block, 9) if block[0] else block

    made = split(da.arange(12, chunks=4).persist()).map_blocks(masked_later, dtype=np.int64)
    assert made.compute().sum() == made.sum().compute() == 45
    assert made.mean().compute() == 4.5


def test_empty_blocks(client: Client) -> None:
    rows = da.from_array(np.arange(6), chunks=((0, 3, 3),)).persist()
    made = split(rows).map_blocks(lambda block: np.array(list(block)), dtype=np.int64)
    assert {block.dtype for block in compute(*made.to_delayed())} == {np.dtype(np.int64)}
    blocks = [FRAME[:0][["a", "b"]], FRAME[["a", "b"]]]
    sums = split(differing(client, blocks, "from_map")).map_blocks(
        lambda block: block.apply(lambda row: row["a"] + row["b"], axis=1), meta=(None, "f8")
    )
    pd.testing.assert_series_equal(sums.compute(), FRAME["a"] + FRAME["b"])


def test_categories_that_blocks_make_are_unknown(frame: Any) -> None:
    made = split(frame).map_blocks(lambda block: block["a"].astype("category"))
    assert not made.cat.known
    known = made.cat.as_known()
    codes = known.cat.codes.compute()
    assert known.cat.categories[codes].tolist() == list(range(60))
