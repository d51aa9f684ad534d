"""Modules that run on Dask workers: find, fetch, copy and iterate the blocks of a partition."""

from __future__ import annotations
