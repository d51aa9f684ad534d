"""Backends of SplIter: one sub-package per engine, imported when the engine is first used."""

from __future__ import annotations
