"""Modules that run in the program: pickle calls, send them in batches, query the scheduler."""

from __future__ import annotations
