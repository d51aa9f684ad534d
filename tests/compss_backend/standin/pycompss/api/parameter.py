"""Directions of task parameters."""

from __future__ import annotations

from typing import Any, Final

Type: Final = "type"
Depth: Final = "depth"
Direction: Final = "direction"

IN: Final = "IN"
OUT: Final = "OUT"
INOUT: Final = "INOUT"
COMMUTATIVE: Final = "COMMUTATIVE"
CONCURRENT: Final = "CONCURRENT"
IN_DELETE: Final = "IN_DELETE"
FILE_IN: Final = "FILE_IN"
FILE_OUT: Final = "FILE_OUT"
FILE_INOUT: Final = "FILE_INOUT"
COLLECTION_IN: Final = "COLLECTION_IN"
COLLECTION_OUT: Final = "COLLECTION_OUT"
COLLECTION_INOUT: Final = "COLLECTION_INOUT"
COLLECTION_IN_DELETE: Final = "COLLECTION_IN_DELETE"
COLLECTION_FILE_IN: Final = "COLLECTION_FILE_IN"


def direction_of(spec: Any) -> tuple[str, int]:
    """Return the direction that a decorator gives to a parameter, and its collection depth."""
    if isinstance(spec, dict):
        kind, depth = spec[Type], spec.get(Depth, 1)
    else:
        kind, depth = spec, 1
    return str(kind), depth if str(kind).startswith("COLLECTION") else 0
