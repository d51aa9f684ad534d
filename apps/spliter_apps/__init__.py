"""Applications written against SplIter alone; they know no engine.

Each is a loop that splits, in a module of its own name, around numerics that know nothing of it.
"""

from __future__ import annotations

from spliter_apps.histogram import histogramdd

__all__ = ["histogramdd"]
