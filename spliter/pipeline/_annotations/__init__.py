"""Annotations of libraries: which functions may be cut, and how; loaded when a library is used.

Other packages offer theirs by an entry point of the group ``spliter.annotations``, named after the
library: a mapping from names of functions, such as ``"skimage.color.rgb2lab"``, to the arguments of
:func:`spliter.pipeline.splittable`.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any, Final

from spliter.pipeline._graph import Annotation

TABLES: Final = {
    "skimage": "spliter.pipeline._annotations.skimage:FUNCTIONS",
}
"""Modules of this package with the annotations of a library's functions, by their names."""

GROUP: Final = "spliter.annotations"
"""Entry points of annotations that come with other packages."""


def annotation_of(fn: Callable[..., Any]) -> Annotation | None:
    """Return the annotation of a function of NumPy, or ``None``.

    Parameters
    ----------
    fn : callable
        What NumPy passes to ``__array_function__``, or a method ``reduce`` of a ufunc.
    """
    from spliter.pipeline._annotations import numpy

    return numpy.FUNCTIONS.get(fn)


@functools.cache
def functions_of(library: str) -> Mapping[str, Mapping[str, Any]]:
    """Return the annotations of a library's functions, by their full names.

    Parameters
    ----------
    library : str
        Top-level module, such as ``"skimage"``.
    """
    found: dict[str, Mapping[str, Any]] = {}
    if library in TABLES:
        module, _, name = TABLES[library].partition(":")
        found.update(getattr(importlib.import_module(module), name))
    for point in metadata.entry_points(group=GROUP, name=library):
        found.update(point.load())
    return found
