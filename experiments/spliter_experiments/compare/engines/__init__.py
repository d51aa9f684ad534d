"""Clusters to compare on: how to connect, load blocks, count tasks and bytes."""

from __future__ import annotations
