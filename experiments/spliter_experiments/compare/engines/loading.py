"""Load an engine by name, importing only its own module."""

from __future__ import annotations

import importlib

from spliter_experiments.compare.engines.engine import EngineKind
from spliter_experiments.harness.errors import ClusterError, OptionError

MODULES = {
    "dask": "spliter_experiments.compare.engines.dask_engine",
    "dataclay": "spliter_experiments.compare.engines.dataclay_engine",
    "compss": "spliter_experiments.compare.engines.compss_launch",
    "compss+dataclay": "spliter_experiments.compare.engines.compss_dataclay_launch",
    "ray": "spliter_experiments.compare.engines.ray_engine",
}
"""Modules that define their engine as ``ENGINE``."""


def load_engine(name: str) -> EngineKind:
    """Import and return an engine.

    Examples
    --------
    >>> load_engine("dask").name
    'dask'
    """
    if name not in MODULES:
        raise OptionError(f"--backend: there is no {name!r}; take one of {', '.join(MODULES)}")
    try:
        engine = importlib.import_module(MODULES[name]).ENGINE
    except ImportError as error:
        extras = name.replace("+", ",")
        raise ClusterError(
            f'--backend {name} cannot be used here: {error}; pip install "pyspliter[{extras}]"'
        ) from error
    assert isinstance(engine, EngineKind)
    return engine
