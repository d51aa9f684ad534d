"""Layouts as MPI's datatypes: the same bounds, order and bytes in the MPI library at hand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from spliter import InvalidArgumentError, PackageMissingError
from spliter import layout as lo
from spliter.layout import _mpi
from tests.conftest import ROOT
from tests.layout.oracle import blocks, memory_for, nests, repeated_map, type_map


@pytest.fixture(scope="module")
def mpi() -> Any:
    try:
        from mpi4py import MPI
    except ImportError as error:
        pytest.skip(f"mpi4py with an MPI library is not installed: {error}")
    return MPI


def extents(layout: lo.Layout) -> list[int]:
    """Return the extents of a layout and of all that it consists of."""
    bases = [base for _, _, base in blocks(layout)] if layout.combiner != "named" else []
    return [layout.extent, *(extent for base in bases for extent in extents(base))]


@given(layout=nests())
def test_bounds_and_packed_bytes_are_those_of_mpi(mpi: Any, layout: lo.Layout) -> None:
    datatype = lo.to_mpi(layout)
    assert datatype.Get_size() == layout.size
    assert datatype.Get_extent() == (layout.lb, layout.extent)
    # MPICH 5.0.2 reads elsewhere if the extent of a part is not positive.
    if layout.size and min(extents(layout)) > 0:
        assert datatype.Get_true_extent() == (layout.true_lb, layout.true_extent)
        memory, origin = memory_for(layout, 2)
        packed = np.empty(2 * layout.size, np.uint8)
        here = mpi.buffer.fromaddress(memory.ctypes.data + origin, len(memory))
        mpi.COMM_SELF.Sendrecv([here, 2, datatype], 0, 0, [packed, mpi.BYTE], 0, 0)
        np.testing.assert_array_equal(packed, memory[np.array(repeated_map(layout, 2)) + origin])
    datatype.Free()


@given(layout=nests())
def test_layouts_come_back_from_mpi(mpi: Any, layout: lo.Layout) -> None:
    datatype = lo.to_mpi(layout)
    again = lo.from_mpi(datatype)
    datatype.Free()
    assert type_map(again) == type_map(layout)
    assert (again.lb, again.extent) == (layout.lb, layout.extent)


def test_extents_of_aligned_layouts_are_those_that_mpi_gives_them(mpi: Any) -> None:
    particle = lo.struct([3, 1, 2], [0, 24, 28], ["f8", "i4", "i2"])
    nested = lo.struct([2, 1], [0, 80], [particle, "i2"])
    made = mpi.Datatype.Create_struct(
        [3, 1, 2], [0, 24, 28], [mpi.DOUBLE, mpi.INT32_T, mpi.INT16_T]
    )
    outer = mpi.Datatype.Create_struct([2, 1], [0, 80], [made, mpi.INT16_T])
    assert made.Get_extent() == (particle.lb, particle.extent)
    assert outer.Get_extent() == (nested.lb, nested.extent)
    outer.Free()
    made.Free()


def test_what_has_no_layout_is_refused(mpi: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="no MPI datatype"):
        lo.from_mpi("f8")
    with pytest.raises(InvalidArgumentError, match="has no NumPy dtype"):
        lo.from_mpi(mpi.DOUBLE_INT)
    block, default = mpi.DISTRIBUTE_BLOCK, mpi.DISTRIBUTE_DFLT_DARG
    darray = mpi.DOUBLE.Create_darray(2, 0, [4], [block], [default], [2])
    with pytest.raises(InvalidArgumentError, match="DARRAY are not supported"):
        lo.from_mpi(darray)
    darray.Free()


def test_the_halo_exchange_of_the_page(mpi: Any, tmp_path: Path) -> None:
    mpiexec = Path(sys.executable).parent / "mpiexec"
    if not mpiexec.exists():
        pytest.skip("no mpiexec of an MPI wheel is beside this Python")
    page = (ROOT / "docs" / "layout.md").read_text(encoding="utf-8")
    program, shown = re.findall(r"```(?:python|console)\n(.*?)```", page, re.DOTALL)[-2:]
    (tmp_path / "halo.py").write_text(program, encoding="utf-8")
    # Open MPI asks for both on small machines and in containers; MPICH ignores them.
    settings = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    settings |= {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
    done = subprocess.run(
        [mpiexec, "-n", "2", sys.executable, tmp_path / "halo.py"],
        env={**os.environ, **settings, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # The lines of two ranks may be mixed.
    assert all(line in done.stdout for line in shown.splitlines()[1:])


def test_missing_mpi4py_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(PackageMissingError, match="need mpi4py"):
        _mpi.to_mpi(lo.of_dtype("f8"))
