"""Run measurements, store their records, and summarize, tabulate and plot them."""

from __future__ import annotations
