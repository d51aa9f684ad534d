"""Modules that run in the processes of dataClay's backends: tasks, blocks, copies, leases."""

from __future__ import annotations
