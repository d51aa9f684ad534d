"""Which backend a collection goes to, and what is said when none, or several, will do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from spliter import (
    BackendNotUsableError,
    InvalidArgumentError,
    UnsupportedCollectionError,
    backends,
    split,
)
from spliter.backend import executor_of_future
from tests.conftest import RunPython

THIRD_PARTY = '''
"""A backend for collections of a type of its own, and for lists if it is greedy."""

import spliter
from spliter_backends.local import (
    LocalExecutor,
    LocalLocator,
    executor_of_future,
)


class Shelf:
    def __init__(self, *blocks):
        self.blocks = list(blocks)


class Locator(LocalLocator):
    greedy = False

    def recognises(self, collection):
        return isinstance(collection, Shelf) or (self.greedy and isinstance(collection, list))

    def open(self, collections):
        return LocalLocator().open([getattr(shelf, "blocks", shelf) for shelf in collections])


class GreedyLocator(Locator):
    greedy = True


BACKEND = spliter.backend.Backend("shelves", Locator(), executor_of_future)
GREEDY = spliter.backend.Backend("greedy", GreedyLocator(), lambda future: None)
TASKS_ONLY = spliter.backend.Backend("tasks", None, lambda future: None)
NOT_A_BACKEND = 42


class AtOnce(LocalExecutor):
    def _queue(self, future, call):
        call()


RUNNER = spliter.backend.Backend("runner", None, lambda future: None, lambda blocks: AtOnce())
GRAPHS = spliter.backend.Backend(
    "graphs", None, lambda future: None, partitioned=lambda client, number: (client.blocks, number)
)
'''


@pytest.fixture
def install(tmp_path: Path) -> Path:
    """Make a distribution's module, on the path of what `run_python` runs."""
    (tmp_path / "shelves.py").write_text(THIRD_PARTY, encoding="utf-8")
    return tmp_path


def entry_points(where: Path, serves: str = "", **points: str) -> None:
    """Have the distribution name these entry points, and say that they serve a package."""
    info = where / "shelves-1.0.dist-info"
    info.mkdir()
    lines = ["[spliter.backends]", *(f"{name} = {target}" for name, target in points.items())]
    if serves:
        lines += ["[spliter.collections]", *(f"{serves} = {name}" for name in points)]
    (info / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shelves\nVersion: 1.0\n")


def printed(run_python: RunPython, program: str) -> str:
    done = run_python("-c", program)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


TRY = """
import json, spliter

def tried(what):
    try:
        return what()
    except spliter.SplIterError as error:
        return f"{{type(error).__name__}}: {{error}}"

print(json.dumps([tried(what) for what in ({whats},)]))
"""


def tried(run_python: RunPython, *expressions: str, before: str = "") -> list[Any]:
    """Return the values of expressions, or the errors they raise, in one fresh interpreter."""
    whats = ", ".join(f"lambda: {expression}" for expression in expressions)
    found: list[Any] = json.loads(printed(run_python, before + TRY.format(whats=whats)))
    return found


def test_a_backend_may_do_a_part_of_the_work(install: Path, run_python: RunPython) -> None:
    made = {"graphs": "shelves:GRAPHS", "tasks": "shelves:TASKS_ONLY", "runner": "shelves:RUNNER"}
    entry_points(install, "shelves", **made)
    thread = "(lambda partition: threading.current_thread().name == 'MainThread')"
    (*found, refused) = tried(
        run_python,
        "spliter.partitioned(Shelf(1), backend='graphs')",
        "spliter.partitioned(Shelf(1), partitions_per_location=2, backend='graphs')",
        "spliter.partitioned(5)",
        "spliter.partitioned(Shelf(1), backend='local')",
        f"spliter.split([[1]], backend='runner').map({thread})[0].result()",
        f"spliter.split([[1]]).map({thread})[0].result()",
        "spliter.split([[1]], backend='tasks')",
        before="import threading\nfrom shelves import Shelf",
    )
    assert found == [
        [[1], None],
        [[1], 2],
        "InvalidArgumentError: partitioned() takes a client of an engine that runs graphs, such as "
        "distributed.Client; got int",
        "BackendNotUsableError: backend 'local' does not run graphs; call split and loop over the "
        "partitions",
        True,
        False,
    ]
    assert refused.startswith("BackendNotUsableError: backend 'tasks' ")


@pytest.mark.thorough
def test_a_third_party_backend_is_found_by_type_and_by_name(
    install: Path, run_python: RunPython
) -> None:
    entry_points(install, shelves="shelves:BACKEND")
    program = """
import spliter, sys
assert "shelves" not in sys.modules
from shelves import Shelf
for name in (None, "shelves"):
    parts = spliter.split(Shelf([1, 2], [3]), backend=name, partitions_per_location=1)
    print(parts.map(list)[0].result())
print([info.name for info in spliter.backends()][-1])
print(len(spliter.split([[1]])))
"""
    assert printed(run_python, program).splitlines() == [
        "[[1, 2], [3]]",
        "[[1, 2], [3]]",
        "shelves",
        "1",
    ]


@pytest.mark.parametrize(("serves", "imported"), [("", True), ("shelves", False)])
def test_a_backend_that_says_what_it_serves_is_imported_for_that_alone(
    install: Path, run_python: RunPython, serves: str, imported: bool
) -> None:
    entry_points(install, shelves="shelves:BACKEND", serves=serves)
    program = """
import spliter, sys
spliter.split([[1]])
print("shelves" in sys.modules)
from shelves import Shelf
print(len(spliter.split(Shelf([1, 2], [3]), partitions_per_location=1)))
"""
    assert printed(run_python, program).splitlines() == [str(imported), "1"]


def test_two_backends_that_want_a_collection_are_both_named(
    install: Path, run_python: RunPython
) -> None:
    entry_points(install, greedy="shelves:GREEDY")
    said, nblocks = tried(
        run_python, "spliter.split([[1]])", "spliter.split([[1]], backend='greedy').nblocks"
    )
    assert said.startswith("BackendNotUsableError: several backends ('greedy', 'local')")
    assert "a list of a list of int" in said
    assert "backend=NAME" in said
    assert nblocks == 1


BROKEN = {
    "absent": ("no_such_module:BACKEND", "No module named 'no_such_module'"),
    "nameless": ("shelves:NO_SUCH_NAME", "NO_SUCH_NAME"),
    "other": ("shelves:NOT_A_BACKEND", "is not a spliter.backend.Backend but <class 'int'>"),
}


@pytest.mark.thorough
def test_broken_backends_are_named_and_do_not_stop_the_others(
    install: Path, run_python: RunPython
) -> None:
    entry_points(install, **{name: target for name, (target, _) in BROKEN.items()})
    nblocks, reasons, *said = tried(
        run_python,
        "spliter.split([[1]]).nblocks",
        "{info.name: info.reason for info in spliter.backends()}",
        *(f"spliter.split([[1]], backend={name!r})" for name in BROKEN),
    )
    assert nblocks == 1
    for (name, (target, why)), error in zip(BROKEN.items(), said, strict=True):
        assert error.startswith("BackendNotUsableError: ")
        assert target in error
        assert why in error
        assert why in reasons[name]


@pytest.mark.thorough
def test_a_broken_backend_is_imported_once_and_named_by_backends(
    install: Path, run_python: RunPython
) -> None:
    entry_points(install, broken="broken_on_import:BACKEND")
    (install / "broken_on_import.py").write_text(
        "print('imported')\nraise OSError('no driver')\n", encoding="utf-8"
    )
    program = """
import operator, spliter
for _ in range(2):
    futures = spliter.split([[1, 2], [3]]).map(len)
    print(sum(spliter.gather(futures)), spliter.reduce(operator.add, futures).result())
print([info for info in spliter.backends() if info.name == "broken"][0].reason)
for _ in range(2):
    try:
        spliter.split([[1]], backend="broken")
    except spliter.BackendNotUsableError as error:
        print(type(error.__cause__).__name__)
"""
    said = printed(run_python, program).splitlines()
    assert said[:3] == ["imported", "2 2", "2 2"]
    assert said[3].startswith(
        "backend 'broken' (broken_on_import:BACKEND) cannot be imported: no d"
    )
    assert said[4:] == ["OSError", "OSError"]


WITHOUT = """
import sys
for name in {blocked}:
    sys.modules[name] = None
"""


def test_a_missing_engine_names_the_extra(run_python: RunPython) -> None:
    without = WITHOUT.format(blocked=["distributed", "dask", "zarr", "pandas", "scipy"])
    said, dask, nblocks = tried(
        run_python,
        "spliter.split([[1]], backend='dask')",
        "[[info.usable, info.extra] for info in spliter.backends() if info.name == 'dask']",
        "spliter.split([[1, 2], [3]]).nblocks",
        before=without,
    )
    assert said.startswith("BackendNotUsableError: backend 'dask' is not usable here: ")
    assert 'pip install "pyspliter[dask]"' in said
    assert (dask, nblocks) == ([[False, "dask"]], 2)


@pytest.mark.backend("dask")
@pytest.mark.backend("zarr")
def test_without_distributed_dask_needs_no_cluster(run_python: RunPython) -> None:
    without = WITHOUT.format(blocked=["distributed"])
    make = """
import dask.array as da, zarr
from spliter_backends.zarr import on_workers
x = da.ones(6, chunks=2)
array = zarr.create_array("memory://a", shape=(4,), chunks=(2,), dtype="i4")
"""
    there, lazy, on_workers = tried(
        run_python,
        "spliter.split(x.persist(scheduler='sync')).nblocks",
        "spliter.split(x)",
        "spliter.split(on_workers(array))",
        before=without + make,
    )
    assert there == 3
    assert lazy.startswith("LazyCollectionError: ") and "persist" in lazy
    assert on_workers.endswith('pip install "pyspliter[dask,zarr]"')


def test_splitting_lists_imports_no_engine(run_python: RunPython) -> None:
    program = """
import sys, spliter
spliter.split([[1, 2]]).map(len)[0].result()
print({"dask", "distributed", "zarr", "pandas", "scipy"} & set(sys.modules))
"""
    assert printed(run_python, program) == "set()"


def test_built_in_backends_come_first() -> None:
    assert [info.name for info in backends()][:2] == ["local", "dask"]
    local = backends()[0]
    assert (local.usable, local.reason, local.extra) == (True, "", None)
    assert local.version == np.__version__


def test_an_unknown_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(
        BackendNotUsableError, match=r"no backend 'spark'; there are 'local', 'dask'"
    ):
        split([np.ones(2)], backend="spark")


@pytest.mark.parametrize("name", [3, b"local", object, ["local"]])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="must be a name"):
        split([np.ones(2)], backend=name)


def test_a_backend_asked_for_that_does_not_know_the_collection() -> None:
    with pytest.raises(
        UnsupportedCollectionError, match=r"is a dict, which the local backend does not"
    ):
        split({}, backend="local")


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (42, r"^int is not a collection"),
        (None, r"^NoneType is not a collection"),
        ({"a": 1}, r"^dict is not a collection"),
        ([1, 2], r"a list of int is not a collection"),
        ((1.5,), r"a tuple of float is not a collection"),
        ([(1, 2)], r"a list of a tuple of int is not a collection"),
        (iter([np.ones(2)]), r"iterator is not a collection"),
        ([np.float64(1)], r"one object in memory.*array_split"),
        (pd.Series([1]), r"Series is one object in memory"),
    ],
)
def test_what_is_no_collection_is_refused_by_name(value: object, says: str) -> None:
    with pytest.raises(UnsupportedCollectionError, match=f"(?s){says}"):
        split(value)


def test_futures_of_no_known_engine_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="not a future of a known engine"):
        executor_of_future(object())
