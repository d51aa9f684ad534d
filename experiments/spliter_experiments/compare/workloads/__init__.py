"""Computations to compare, and the ways to do each."""

from __future__ import annotations
