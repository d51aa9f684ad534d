"""Input data of the comparisons: sources, file readers, column selection, blocks."""

from __future__ import annotations
