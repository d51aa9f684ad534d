"""Data to compare on: sources, files, columns, blocks."""

from __future__ import annotations
