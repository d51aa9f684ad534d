"""The comparisons of SplIter with other ways, and the ``spliter`` command."""

from __future__ import annotations
