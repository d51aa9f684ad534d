"""Errors for wrong calls: each says what is wrong with the value, and what to do."""

from __future__ import annotations

import copy
import functools
import operator
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from spliter import (
    InvalidArgumentError,
    Partition,
    Split,
    TaskFailedError,
    UnsupportedCollectionError,
    as_completed,
    gather,
    progress,
    reduce,
    split,
    task,
)

BLOCKS = [np.arange(4.0), np.arange(2.0), np.arange(3.0)]


@pytest.fixture(scope="module")
def parts() -> Iterator[Split]:
    with split(BLOCKS, partitions_per_location=2) as opened:
        yield opened


@task
def total(partition: Partition, scale: float = 1.0) -> float:
    return scale * sum(float(block.sum()) for block in partition)


SPLITS: list[tuple[tuple[Any, ...], type[Exception], str]] = [
    ((BLOCKS, 2), InvalidArgumentError, r"collection 1 is 2; .*partitions_per_location=2"),
    ((BLOCKS, True), InvalidArgumentError, r"is True; .*materialize=True"),
    ((BLOCKS, "auto"), InvalidArgumentError, r"is 'auto'; .*materialize='auto'"),
    ((BLOCKS, "local"), InvalidArgumentError, r"is 'local'; .*backend='local'"),
    ((BLOCKS, BLOCKS, None), InvalidArgumentError, r"collection 2 is None; leave it out"),
    (
        (BLOCKS, np.arange(9)),
        UnsupportedCollectionError,
        r"collection 1 is one numpy.ndarray in memory, .*a list of parts",
    ),
    (
        (pd.DataFrame({"a": [1]}),),
        UnsupportedCollectionError,
        r"pandas.*DataFrame is one object in memory, .*from_pandas\(df, npartitions=8\)",
    ),
    ((np.ones(3),), UnsupportedCollectionError, r"numpy.ndarray .*numpy.array_split\(x, 8\)"),
    (
        ("rows.parquet",),
        UnsupportedCollectionError,
        r"^'rows.parquet' is a string, .*x = dask.dataframe.read_parquet\('rows.parquet'\).persist",
    ),
    ((Path("/x/rows.csv"),), UnsupportedCollectionError, r"read_csv\('/x/rows.csv'\)"),
    (("rows.npy",), UnsupportedCollectionError, r"numpy.load\('rows.npy', mmap_mode='r'\)"),
    (("rows.zarr",), UnsupportedCollectionError, r"zarr.open_array\('rows.zarr', mode='r'\)"),
]


@pytest.mark.parametrize(("given", "kind", "says"), SPLITS)
def test_split_of_what_it_does_not_take(
    given: tuple[Any, ...], kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind, match=says):
        split(*given)


def test_a_split_is_not_split_again(parts: Split) -> None:
    for given in (parts, parts[0], parts[:]):
        with pytest.raises(UnsupportedCollectionError, match="split already; start a task on each"):
            split(given)


CALLS: list[tuple[Callable[[Any], Any], str]] = [
    (total, r"total\(\) got a Split of 2 partitions, .*parts.map\(total\)"),
    (lambda parts: total(parts[:]), r"total\(\) got a list of 2 partitions"),
    (lambda parts: total(partition=parts), r"total\(\) got a Split"),
    (lambda parts: gather(parts.map(len)[0]), r"^gather\(\) takes a list of futures, got <Local"),
    (lambda _: gather(5), r"^gather\(\) takes a list of futures, got 5; put one future"),  # type: ignore[arg-type]
    (
        lambda _: gather([1]),
        r"^gather\(\) got 1: int is not a future of a known engine; pass results",
    ),
    (lambda parts: gather([*parts.map(len), 7]), r"^gather\(\) got 7: int is not a future"),
    (gather, r"^gather\(\) takes futures, got <Partition .*start a task"),
    (lambda _: list(as_completed([1])), r"^as_completed\(\) got 1"),
    (lambda parts: list(as_completed(parts.map(len)[0])), r"^as_completed\(\) takes a list"),
    (lambda _: progress([1], disable=True), r"^progress\(\) got 1"),
    (lambda _: reduce(operator.add, [1]), r"^reduce\(\) got 1"),
    (lambda parts: reduce(operator.add, parts), r"reduce\(fn, parts.map\(task\)\)"),
    (
        lambda parts: reduce(parts.map(len), operator.add),  # type: ignore[arg-type]
        r"^reduce\(fn, futures\) takes the function first .*got \[<LocalFuture",
    ),
    (
        lambda parts: parts.map(total, retries=2),
        r"^total\(\) has no argument 'retries', .*with dask.annotate\(retries=2\):",
    ),
    (lambda parts: total(parts[0], workers="a"), r"'workers', .*omit it: a task runs where"),  # type: ignore[call-arg]
    (
        lambda parts: np.asarray(parts[0]),
        r"^<Partition local: .*iterate over it, or call its mater",
    ),
    (np.asarray, r"is not an array"),
]


@pytest.mark.parametrize(("call", "says"), CALLS)
def test_calls_that_cannot_work(parts: Split, call: Callable[[Any], Any], says: str) -> None:
    with pytest.raises(InvalidArgumentError, match=says):
        call(parts)


@task
def untouched(model: Any, partition: Any) -> None:
    raise AssertionError("must not run")


def dask_array() -> Any:
    return pytest.importorskip("dask.array").ones((6, 2), chunks=(2, 2))


def dask_frame() -> Any:
    return pytest.importorskip("dask.dataframe").from_pandas(pd.DataFrame({"a": [1, 2]}), 2)


def xarray_array() -> Any:
    return pytest.importorskip("xarray").DataArray(dask_array(), dims=("time", "at"))


def zarr_array() -> Any:
    return pytest.importorskip("zarr").zeros((6, 2), chunks=(2, 2), store={})


BOTH_FORMS = (
    r" for each: \[untouched\(partition\) for partition in split\(x\)\], or split\(x\)\.map\("
)
IN_MEMORY = (
    r"in memory, .* \[untouched\(partition\) for partition in split\(parts\)\], or .*"
    r"untouched\(\[frame\]\)$"
)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (dask_array, rf"a dask\.array\..*{BOTH_FORMS}"),
        (dask_frame, rf"a dask\.dataframe\..*{BOTH_FORMS}"),
        (xarray_array, rf"a xarray\..*DataArray,.*{BOTH_FORMS}"),
        (lambda: xarray_array().to_dataset(name="x"), rf"a xarray\..*Dataset,.*{BOTH_FORMS}"),
        (zarr_array, rf"a zarr\..*{BOTH_FORMS}"),
        (lambda: pd.DataFrame({"a": [1, 2]}), rf"a pandas.*DataFrame {IN_MEMORY}"),
        (lambda: pd.Series([1, 2]), rf"a pandas.*Series {IN_MEMORY}"),
    ],
)
def test_a_task_is_not_called_with_a_collection(make: Callable[[], Any], says: str) -> None:
    given = make()
    for arguments, named in (
        ((None, given), {}),
        ((given, None), {}),
        ((None,), {"partition": given}),
    ):
        with pytest.raises(InvalidArgumentError, match=rf"^untouched\(\) got {says}"):
            untouched(*arguments, **named)


def test_a_task_is_not_called_with_a_memory_map(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=rf"got a numpy.memmap,.*{BOTH_FORMS}"):
        untouched(None, np.memmap(tmp_path / "x.bin", "f8", "w+", shape=(6, 2)))


@pytest.mark.parametrize("make", [dask_array, dask_frame, zarr_array, lambda: pd.Series([1, 2])])
def test_next_to_a_partition_any_argument_is_passed_on(
    parts: Split, make: Callable[[], Any]
) -> None:
    @task
    def second(partition: Partition, other: Any) -> Any:
        return other

    given = make()
    assert second(parts[0], given).result() is given
    assert second(parts[0].at_location(), other=given) is given


def test_without_a_partition_a_task_is_a_function_of_blocks_and_values(parts: Split) -> None:
    assert total([np.ones(2), np.ones(3)]) == 5  # type: ignore[arg-type]
    assert total(np.ones((3, 2)), 2.0) == 12  # type: ignore[arg-type]
    assert task(len)([pd.DataFrame({"a": [1, 2]})]) == 1


NAMES: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (lambda parts: parts.compute(), AttributeError, r"nothing to compute; .* gather\(futures\)"),
    (lambda parts: parts.persist(), AttributeError, r"persist what tasks return"),
    (lambda parts: parts.map_partitions(len), AttributeError, r"parts.map\(fn\).*parts.map_blocks"),
    (lambda parts: parts.npartitions, AttributeError, r"call len\(parts\)"),
    (lambda parts: parts.mean(), AttributeError, r"^'Split' object has no .*'mean'; .*parts.map\("),
    (lambda parts: parts[0].mean(), AttributeError, r"^'Partition' .*'mean'; .*for block in parti"),
    (lambda parts: parts[0].compute(), AttributeError, r"'compute'; .*for block in partition"),
    (lambda parts: parts["a"], TypeError, r"not str; select columns of the collection"),
    (lambda parts: parts[["a"]], TypeError, r"not list; .*materialize\(columns=...\)"),
    (
        lambda parts: parts[0][0],
        TypeError,
        r"^'Partition' .*subscriptable; .*for block in partition",
    ),
    (lambda parts: parts[0]["a"], TypeError, r"^'Partition' .*; .*materialize\(columns=...\)"),
    (lambda _: split(BLOCKS, npartitions=4), TypeError, r"'npartitions'; pass partitions_per_loca"),  # type: ignore[arg-type]
    (lambda _: split(BLOCKS, chunks=4), TypeError, r"'chunks'; .*rechunk the collection"),  # type: ignore[arg-type]
    (lambda _: split(BLOCKS, other=4), TypeError, r"unexpected keyword argument 'other'$"),  # type: ignore[arg-type]
    (lambda parts: parts._mean, AttributeError, r"'Split' object has no attribute '_mean'$"),
]


@pytest.mark.parametrize(("use", "kind", "says"), NAMES)
def test_names_of_dask_and_of_blocks(
    parts: Split, use: Callable[[Any], Any], kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind, match=says):
        use(parts)


@pytest.mark.parametrize(
    "fn",
    [
        lambda block, block_info=None: block * (2 if block_info else 1),
        lambda block, block_id: block * block_id[0],
        functools.partial(lambda block, factor, *, partition_info=None: block * factor, factor=2),
    ],
)
def test_parameters_that_dask_would_fill_in(parts: Split, fn: Callable[..., Any]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"does not fill in; .*partition.items\(\)"):
        parts.map_blocks(fn, dtype=float)
    given = parts.map_blocks(lambda block, block_id: block * 0 + block_id, block_id=3)
    assert all(np.all(block == 3) for block in given)


def test_options_of_dasks_map_blocks(parts: Split) -> None:
    for name, says in {
        "chunks": "trailing_shape=.*rows='unknown'",
        "drop_axis": "trailing_shape=",
        "new_axis": "trailing_shape=",
        "enforce_ndim": "are checked",
        "name": "omit it",
        "token": "omit it",
    }.items():
        option: dict[str, Any] = {name: 0}
        for fn in (np.sqrt, lambda block: block):
            with pytest.raises(InvalidArgumentError, match=rf"no argument {name!r}, .*{says}"):
                parts.map_blocks(fn, **option)
        made = parts.map_blocks(lambda block, **options: block * 0 + len(options), **option)
        assert all(np.all(block == 1) for block in made)


@pytest.mark.parametrize(
    "meta", ["f8", float, np.float64, np.dtype("f8"), pd.Series, np.float64(1)]
)
def test_meta_that_is_no_example(parts: Split, meta: Any) -> None:
    forms = r"dtype= .*\(name, dtype\) .*{name: dtype} .*an empty array"
    with pytest.raises(InvalidArgumentError, match=forms):
        parts.map_blocks(np.sqrt, meta=meta)


def test_hints_are_in_nobodys_way(parts: Split) -> None:
    partition = parts[0]
    assert not hasattr(parts, "compute") and not hasattr(partition, "mean")
    assert getattr(parts, "__array_interface__", None) is None
    for same in (
        copy.copy(partition.at_location()),
        copy.deepcopy(partition.at_location()),
        pickle.loads(pickle.dumps(partition)),
    ):
        assert len(same) == len(partition)
    assert len(list(partition.at_location())) == len(partition)
    with pytest.raises(TypeError, match="a Split cannot be pickled"):
        copy.copy(parts)


def test_options_of_submit_reach_a_function_that_has_them(parts: Split) -> None:
    def with_option(partition: Partition, retries: int) -> int:
        return retries

    def with_any(partition: Partition, **options: int) -> int:
        return options["priority"]

    assert gather(parts.map(with_option, retries=2)) == [2, 2]
    assert gather(parts.map(task(with_any), priority=3)) == [3, 3]


def test_a_generator_of_futures_raises_its_own_error(parts: Split) -> None:
    with pytest.raises(TypeError, match="unsupported operand"):
        gather(len(partition) + "" for partition in parts)  # type: ignore[operator]


def test_a_task_passes_lists_of_partitions_on(parts: Split) -> None:
    @task
    def with_others(partition: Partition, others: list[Partition]) -> int:
        return len(others)

    assert with_others(parts[0], list(parts)).result() == 2


def test_a_task_may_be_declared_with_parentheses(parts: Split) -> None:
    @task()
    def blocks(partition: Partition) -> int:
        """Count."""
        return len(partition)

    assert blocks.__doc__ == "Count."
    assert gather([blocks(partition) for partition in parts]) == [1, 2]


def test_a_task_that_exits_does_not_end_the_program(parts: Split) -> None:
    def leave(partition: Partition) -> None:
        sys.exit(3)

    def interrupt(partition: Partition) -> None:
        raise KeyboardInterrupt

    with pytest.raises(TaskFailedError, match=r"(?s)sys.exit\(3\).*in leave\n"):
        parts[0].submit(leave).result()
    with pytest.raises(TaskFailedError, match="raised KeyboardInterrupt"):
        gather(parts.map(interrupt))
