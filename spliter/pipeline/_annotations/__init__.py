"""Annotations of libraries: which functions may be cut, and how.

Other packages offer theirs by an entry point of the group ``spliter.annotations``, named after the
library: a mapping from names of functions, such as ``"skimage.color.rgb2lab"``, to the arguments of
:func:`spliter.pipeline.splittable`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib import metadata
from typing import Any, Final

from spliter._errors import AnnotationError
from spliter.pipeline._annotations import pandas, skimage

TABLES: Final[Mapping[str, Mapping[str, Any]]] = {
    "skimage": skimage.FUNCTIONS,
    "pandas": pandas.FUNCTIONS,
}
"""Annotations of a library's functions that come with this package."""

GROUP: Final = "spliter.annotations"
"""Entry points of annotations that come with other packages."""


@functools.cache
def functions_of(library: str) -> Mapping[str, Any]:
    """Return the annotations of a library's functions, by their full names."""
    found = dict(TABLES.get(library, {}))
    for point in metadata.entry_points(group=GROUP, name=library):
        table = point.load()
        rows = table.values() if isinstance(table, Mapping) else [None]
        if not all(isinstance(each, Mapping) and "returns" in each for each in rows):
            raise AnnotationError(
                f"the entry point {point.name} of {GROUP}, which is {point.value}, must be a dict "
                "from full names of functions to dicts of the arguments of splittable, such as "
                '{"skimage.color.rgb2lab": {"rgb": Rows(), "returns": Rows()}}'
            )
        found.update(table)
    return found
