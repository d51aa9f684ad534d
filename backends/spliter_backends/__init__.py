"""Backends of SplIter: modules named after their engine, imported when it is first used."""

from __future__ import annotations
