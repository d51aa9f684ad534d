"""Measure programs of NumPy, pandas and image libraries as they are, as pipelines, and compiled."""

from __future__ import annotations
