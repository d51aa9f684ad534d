"""Backends of SplIter: one sub-package per engine, imported when the engine is first used."""

from __future__ import annotations

from spliter.backend import Declaration
from spliter_backends._shared.dask_options import BLOCK_OPTIONS, BLOCK_PARAMETERS, SUBMIT_OPTIONS

DECLARED = (
    Declaration(
        "local",
        frozenset(
            {"builtins", "concurrent", "dask", "numpy", "pandas", "scipy", "sparse", "zarr"}
            | {"spliter_backends._shared.stored"}
        ),
        "numpy",
    ),
    Declaration(
        "dask",
        frozenset({"dask", "distributed"}),
        "distributed",
        "dask",
        graphs=True,
        task_options=SUBMIT_OPTIONS,
        block_options=BLOCK_OPTIONS,
        block_parameters=BLOCK_PARAMETERS,
    ),
    Declaration(
        "dataclay", frozenset({"dataclay", "spliter_backends.dataclay"}), "dataclay", "dataclay"
    ),
    Declaration(
        "compss",
        frozenset({"dislib", "pycompss", "spliter_backends.compss"}),
        extra="compss",
        keywords=frozenset({"compss_core_element"}),
    ),
    Declaration("ray", frozenset({"ray", "spliter_backends.ray"}), "ray", "ray"),
    Declaration("xarray", frozenset({"xarray", "spliter_backends.xarray"}), "xarray", "xarray"),
    Declaration(
        "zarr",
        frozenset({"spliter_backends.zarr"}),
        "zarr",
        "dask,zarr",  # the workers are Dask's
    ),
    Declaration("files", frozenset({"spliter_backends.files.collection"}), "pyarrow", "dask,files"),
)
"""Names, types and extras of the engines, which the core reads without importing any."""
