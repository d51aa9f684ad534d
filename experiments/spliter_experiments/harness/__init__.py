"""Records, runs, tables and plots of all measurements."""

from __future__ import annotations
