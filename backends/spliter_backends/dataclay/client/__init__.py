"""Modules that run in the program: the connection to dataClay, calls of its backends, futures."""

from __future__ import annotations
