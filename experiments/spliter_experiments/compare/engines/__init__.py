"""Engines that ``spliter compare`` runs on: connect, load blocks, run tasks, count and reset."""

from __future__ import annotations
