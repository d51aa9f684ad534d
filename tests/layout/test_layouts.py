"""Layouts as values; those of dtypes and arrays; what packers promise beyond single copies."""

from __future__ import annotations

import ctypes
import gc
import itertools
import mmap
import pickle
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spliter import InvalidArgumentError, LayoutBoundsError, PackageMissingError
from spliter import layout as lo
from spliter._machine import llvm
from spliter.layout import _constructors, _kernels
from spliter.layout._kernels import KERNELS, Kernels
from spliter.layout._packer import Engine
from spliter.layout._shapes import Copy, FusedLoop, IndexLoop, Loop, Parts, Row, call_of
from tests.layout.oracle import type_map

RNG = np.random.default_rng(7)
ENGINES: list[Engine] = ["numpy", "llvm"]

FIELDS = lo.struct([1] * 5, [0, 12, 20, 30, 44], ["f8", "i4", "u1", "i2", "f4"])

LAYOUTS = {
    "rows of five fields": lo.contiguous(300, lo.resized(FIELDS, 0, 48)),
    "columns of one row type": lo.struct(
        [1] * 11, range(0, 88, 8), [lo.hvector(50, 1, 88, "f8")] * 11
    ),
    "columns of several types": lo.struct(
        [1, 1, 1], [0, 8, 12], [lo.hvector(50, 1, 13, kind) for kind in ("f8", "i4", "u1")]
    ),
    "transpose": lo.contiguous(21, lo.resized(lo.vector(20, 1, 21, "f8"), 0, 8)),
    "long runs": lo.vector(40, 33, 40, "f8"),
    "permuted elements": lo.indexed_block(1, RNG.permutation(500), "f8"),
    "permuted triples": lo.indexed_block(3, 3 * RNG.permutation(200), "f4"),
    "runs of any length": lo.indexed(RNG.integers(0, 60, 90), 60 * RNG.permutation(90), "i2"),
    "long runs of any length": lo.indexed(
        RNG.integers(400, 600, 20), 700 * RNG.permutation(20), "i8"
    ),
    "blocks of vectors of any length": lo.indexed(
        RNG.integers(1, 5, 40), 5 * RNG.permutation(40), lo.vector(3, 1, 2, "i2")
    ),
    "boxes at places": lo.hindexed_block(
        1, 4000 * RNG.permutation(9), lo.subarray([9, 9, 9], [4, 5, 6], [1, 2, 3], "i4")
    ),
    "large blocks at places": lo.hindexed_block(8000, 9000 * RNG.permutation(9), "u1"),
    "many parts": lo.struct(
        [1] * 20, range(0, 80_000, 4000), [lo.hvector(20 + n, 1, 16, "f8") for n in range(20)]
    ),
    "a message": lo.struct(
        [1, 200], [0, 4000], [lo.indexed_block(3, 3 * RNG.permutation(50), "f8"), "i4"]
    ),
    "from the end": lo.hindexed_block(1, [3960], lo.hvector(100, 2, -40, "f4")),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", LAYOUTS)
def test_large_layouts_in_parts(name: str, engine: Engine) -> None:
    layout = LAYOUTS[name]
    displacements = np.array(type_map(layout))
    memory = RNG.integers(0, 256, displacements.max() + 1, np.uint8)
    packer = layout.commit(engine)
    packed = packer.pack(memory)
    np.testing.assert_array_equal(packed, memory[displacements])
    other = np.full_like(memory, 0xA5)
    expected = other.copy()
    expected[displacements] = packed
    cuts = [0, *sorted(RNG.integers(0, len(packed), 9).tolist()), len(packed)]
    for start, stop in itertools.pairwise(cuts):
        packer.unpack(packed[start:stop], other, start)
    np.testing.assert_array_equal(other, expected)
    other[:] = 0xA5
    packer.unpack(packed, other)
    np.testing.assert_array_equal(other, expected)


def test_every_kind_of_loop_is_compiled_above() -> None:
    calls = [call_of(layout.placed.node) for layout in LAYOUTS.values()]
    kinds = {type(call.shape) for call in calls if call}
    assert kinds == {Loop, IndexLoop, FusedLoop, Parts}
    assert None in calls, "with many parts, each has a kernel"
    assert any(call and call.shape == IndexLoop(None) for call in calls)
    assert any(call and call.shape == Loop(Row((8, 4, 1, 2, 4))) for call in calls)


def test_long_lists_of_blocks_of_a_base_with_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_constructors, "MOST_PLACES", 10)
    layout = LAYOUTS["blocks of vectors of any length"]
    displacements = np.array(type_map(layout))
    memory = RNG.integers(0, 256, displacements.max() + 1, np.uint8)
    np.testing.assert_array_equal(layout.commit().pack(memory), memory[displacements])


def test_layouts_are_values() -> None:
    one = lo.indexed([1, 2], [0, 4], lo.vector(2, 1, 2, "f8"))
    same = lo.indexed(np.array([1, 2], "u2"), (0, 4), lo.vector(2, 1, 2, float))
    assert one == same
    assert len({one, same, lo.indexed([1, 2], [0, 5], "f8")}) == 2
    assert one != lo.indexed([1, 2], [0, 4], lo.vector(2, 1, 2, "i8"))
    assert lo.vector(2, 1, 2, "f8") != lo.hvector(2, 1, 2, "f8")
    assert one != "indexed"


def test_layouts_cannot_be_changed() -> None:
    displacements = np.array([0, 4])
    layout: Any = lo.indexed_block(1, displacements, "f8")
    displacements[0] = 99
    assert layout.contents["displacements"].tolist() == [0, 4]
    again = pickle.loads(pickle.dumps(layout))
    for one in (layout, again):
        with pytest.raises(ValueError, match="read-only"):
            one.contents["displacements"][0] = 1
        with pytest.raises(ValueError, match="WRITEABLE"):
            one.contents["displacements"].flags.writeable = True
        with pytest.raises(TypeError):
            one.contents["blocklength"] = 2
        with pytest.raises(AttributeError):
            one.combiner = "vector"


def test_representations_are_short() -> None:
    layout = lo.struct([1, 1], [0, 8], ["f8", lo.indexed_block(1, range(99), ">i4")])
    expected = (
        "struct(blocklengths=[1, 1], displacements=[0, 8], types=('f8', indexed_block("
        "blocklength=1, displacements=[0, 1, 2, 3, ... 99 in all], base='>i4')))"
    )
    assert repr(layout) == expected
    assert repr(layout.commit("numpy")) == f"<Packer of 404 bytes: {expected}>"
    assert repr(lo.struct([1] * 9, [0] * 9, ["u1"] * 9)).endswith("... 9 in all))")
    assert repr(lo.of_dtype("M8[s]")) == "named('<M8[s]')"


def test_structs_are_padded_as_in_c() -> None:
    fields = {"a": "i2", "b": "f8", "c": "u1"}
    dtype = np.dtype(list(fields.items()), align=True)
    places = [int(dtype.fields[name][1]) for name in fields] if dtype.fields else []
    assert lo.struct([1, 1, 1], places, list(fields.values())).extent == dtype.itemsize
    assert lo.struct([1, 0], [0, 8], ["u1", "f8"]).extent == 1, "empty blocks do not count"


NESTED = np.dtype([("a", "i2"), ("b", [("c", "f8", (2, 3)), ("d", "S3")]), ("e", "V0")], align=True)


def test_fields_of_dtypes_are_packed_without_padding() -> None:
    rows = np.frombuffer(RNG.bytes(4 * NESTED.itemsize), NESTED)
    packed = lo.of_dtype(NESTED).commit().pack(rows, count=4)
    expected = b"".join(
        row["a"].tobytes() + row["b"]["c"].tobytes() + rows["b"]["d"][n : n + 1].tobytes()
        for n, row in enumerate(rows)
    )
    assert packed.tobytes() == expected
    chosen = lo.of_dtype(rows[["e", "a"]].dtype)
    assert chosen.commit().pack(rows, count=4).tobytes() == rows["a"].tobytes()
    assert chosen.extent == NESTED.itemsize


ENDS, STEPS = st.integers(-7, 7), st.sampled_from([1, 2, -1, -3])
VIEWS = st.tuples(*(st.builds(slice, ENDS, ENDS, STEPS),) * 3)


@given(VIEWS, st.permutations(range(3)))
def test_views_are_packed_like_tobytes(slices: Any, axes: list[int]) -> None:
    x = np.arange(5 * 6 * 7, dtype=">i4").reshape(5, 6, 7)
    view = x[slices].transpose(axes)
    assert lo.of_array(view).commit().pack(view).tobytes() == view.tobytes()
    inside = lo.of_array(view, x).commit()
    assert inside.pack(x).tobytes() == view.tobytes()
    assert inside.pack(bytearray(x.tobytes())).tobytes() == view.tobytes()
    other = np.zeros_like(x)
    inside.unpack(view.tobytes(), other)
    expected = np.zeros_like(x)
    expected[slices] = x[slices]
    np.testing.assert_array_equal(other, expected)


def test_bytes_move_as_they_are() -> None:
    payload = np.array([0x7FF0_0000_0000_0001, 0xFFF8_0000_DEAD_BEEF], "u8")
    for kind in ("f8", ">f8", "c16", "m8[s]"):
        packer = lo.contiguous(16 // np.dtype(kind).itemsize, kind).commit()
        assert packer.pack(payload).tobytes() == payload.tobytes()


def test_columns_in_fortran_order_and_subclasses_of_arrays(tmp_path: Any) -> None:
    x = np.asfortranarray(np.arange(12.0).reshape(3, 4))
    column = lo.contiguous(3, "f8").commit()
    assert column.pack(x[:, 1:]).view("f8").tolist() == [1, 5, 9]
    mapped = np.memmap(tmp_path / "x", "f8", "w+", shape=(3,))
    assert column.unpack(column.pack(x), out=mapped) is mapped
    assert mapped.tolist() == [0, 4, 8]
    assert column.unpack(bytes(24), out=x) is x
    assert x[:, 0].tolist() == [0, 0, 0]


@pytest.mark.parametrize("engine", ENGINES)
def test_nothing_beyond_the_buffer_is_touched(engine: Engine) -> None:
    """A page behind the buffer cannot be read: touching it would end the process."""
    page, nbytes = mmap.PAGESIZE, 32 * mmap.PAGESIZE
    whole = np.frombuffer(mmap.mmap(-1, nbytes + 2 * page), np.uint8)
    memory = whole[page : page + nbytes]
    for guard in (whole.ctypes.data, memory.ctypes.data + nbytes):
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(guard), page, 0) == 0
    memory[:] = RNG.integers(0, 256, nbytes)
    for layout in LAYOUTS.values():
        packer, high = layout.commit(engine), layout.bounds.true_ub
        assert layout.true_lb >= 0 and high <= nbytes
        for exact in (memory[:high], memory[-high:]):
            packer.unpack(packer.pack(exact), exact)
            with pytest.raises(LayoutBoundsError):
                packer.pack(exact[1:])


def test_one_packer_serves_many_threads() -> None:
    memory = RNG.integers(0, 256, 200_000, np.uint8)
    packers = [layout.commit(engine) for layout in LAYOUTS.values() for engine in (None, *ENGINES)]
    expected = [packer.pack(memory) for packer in packers]
    begin = threading.Barrier(4)

    def work(number: int) -> bool:
        begin.wait(timeout=60)
        each = range(number, number + 2 * len(packers))
        return all(
            np.array_equal(packers[n % len(packers)].pack(memory), expected[n % len(packers)])
            for n in each
        )

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


@pytest.mark.parametrize("holds_gil", [False, True])
def test_another_thread_runs_during_a_kernel(
    holds_gil: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels release the GIL; the control calls the same kernel without that."""
    if holds_gil:
        monkeypatch.setattr(_kernels, "_KERNEL", ctypes.PYFUNCTYPE(None, *[ctypes.c_size_t] * 3))
    monkeypatch.setattr("spliter.layout._llvm_engine.KERNELS", Kernels())
    packer = lo.indexed_block(1, RNG.permutation(100_000), "f8").commit("llvm")
    memory, out = np.zeros(100_000), np.empty(800_000, np.uint8)
    begin, ran = threading.Event(), threading.Event()

    def run() -> None:
        begin.wait()
        ran.set()

    other = threading.Thread(target=run)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # seconds: nothing else lets the other thread run
    try:
        # A thread that waits for the GIL keeps the interval with which it began to wait, so the
        # new one is set first: `start` returns when the other thread sleeps in `begin.wait`.
        other.start()
        begin.set()
        for _ in range(500):
            packer.pack(memory, out)
            if ran.is_set():
                break
        ran_meanwhile = ran.is_set()
    finally:
        sys.setswitchinterval(interval)
        other.join()
    assert ran_meanwhile is not holds_gil


def test_packers_pickle_as_their_layout() -> None:
    packer = LAYOUTS["a message"].commit("numpy")
    again = pickle.loads(pickle.dumps(packer))
    assert again.layout == packer.layout
    assert str(again.explain()) == str(packer.explain())


@pytest.mark.parametrize("binds", [False, True])
def test_memory_is_freed_with_the_packer(binds: bool) -> None:
    memory = RNG.integers(0, 256, 100_000, np.uint8)
    packer = lo.indexed_block(1, RNG.permutation(1000), "f8").commit("llvm")
    packed = packer.pack(memory)
    packer.unpack(packed, out=memory)
    bound = packer.bind(memory, packed) if binds else None
    node = weakref.ref(packer.layout.placed.node)
    buffers = [weakref.ref(memory), weakref.ref(packed)]
    del packer, memory, packed, bound
    gc.collect()
    assert node() is None
    assert [buffer() for buffer in buffers] == [None, None]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.thorough
def test_bound_packers_keep_what_they_use(name: str, engine: Engine) -> None:
    """Memory, code and displacements stay, and what is moved is what is there at the call."""
    packer = LAYOUTS[name].commit(engine)
    memory = RNG.integers(0, 256, 200_000, np.uint8)
    expected = packer.pack(memory).tobytes()
    bound = packer.bind(np.zeros_like(memory), bytearray(packer.size))
    del packer
    KERNELS._kernels.clear()
    gc.collect()
    bound.array[:] = memory
    assert bound.pack() == expected
    bound.array[:] = 0
    bound.unpack()
    bound.packed[:] = bytes(len(expected))
    assert bound.pack() == expected
    with pytest.raises(ValueError, match="resize"):
        bound.array.resize(10)
    with pytest.raises(BufferError):
        bound.packed.clear()
    with pytest.raises(InvalidArgumentError, match="send the packer"):
        pickle.dumps(bound)
    assert repr(bound) == f"<BoundPacker of {len(expected)} bytes>"


def test_kernels_are_compiled_once_for_a_shape_and_forgotten() -> None:
    kernels = Kernels(limit=2)
    first = kernels.find(Loop(Copy(3)), unpacks=False, saves=1)
    assert first is not None
    assert kernels.find(Loop(Copy(3)), unpacks=False, saves=0) is first
    assert kernels.find(Loop(Copy(3)), unpacks=True, saves=0.5) is None, "does not pay yet"
    assert kernels.find(Loop(Copy(3)), unpacks=True, saves=0.5) is not None
    code = weakref.ref(first)
    del first
    kernels.find(Loop(Copy(5)), unpacks=False, saves=1)
    gc.collect()
    assert len(kernels) == 2
    assert code() is None


def test_layouts_of_one_shape_share_a_kernel() -> None:
    lo.vector(100, 3, 5, "i4").commit("llvm")
    before = len(KERNELS)
    for count, stride in ((17, 4), (2000, 300)):
        lo.vector(count, 3, stride, "i4").commit("llvm")
    assert len(KERNELS) == before


def test_compiling_starts_when_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = Kernels()
    monkeypatch.setattr("spliter.layout._llvm_engine.KERNELS", kernels)
    packer = LAYOUTS["permuted elements"].commit()
    memory = np.zeros(4000, np.uint8)
    uses = packer.explain().uses
    assert uses is not None and uses > 1
    for _ in range(uses - 1):
        packer.pack(memory)
    assert len(kernels) == 0
    packer.pack(memory)
    packer.pack(memory)
    assert len(kernels) == 1
    plain = lo.vector(5000, 1, 2, "f8").commit()
    assert plain.explain().uses is None
    assert plain.explain().engine == "numpy"


def test_without_llvmlite_numpy_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    llvm.is_installed.cache_clear()
    try:
        layout = LAYOUTS["permuted elements"]
        assert layout.commit().explain().engine == "numpy"
        with pytest.raises(PackageMissingError, match=r"pyspliter\[jit\]"):
            layout.commit("llvm")
    finally:
        monkeypatch.undo()
        llvm.is_installed.cache_clear()


def test_commit_brings_layouts_to_their_simplest_form() -> None:
    matrix = lo.hvector(7, 1, 40, lo.hvector(5, 1, 8, lo.vector(2, 1, 1, "f4")))
    assert matrix.commit().explain().normal_form == "280 bytes"
    fields = lo.struct([1, 1, 1], [0, 8, 24], ["f8", "f8", "f8"])
    assert fields.commit().explain().normal_form == "runs of [16, 8] bytes at [0, 24]"
