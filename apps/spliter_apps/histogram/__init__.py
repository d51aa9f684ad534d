"""Histograms of distributed data with NumPy's interface; needs only NumPy."""

from __future__ import annotations

from spliter_apps.histogram.histogram import histogramdd

__all__ = ["histogramdd"]
