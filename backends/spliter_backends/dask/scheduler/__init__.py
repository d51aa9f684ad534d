"""Modules that run in Dask's scheduler: release pins that cannot be honoured, bound its records."""

from __future__ import annotations
