"""Cascade support vector machine on distributed points, with scikit-learn's interface."""

from __future__ import annotations

from spliter_apps.svm.estimator import CascadeSVM

__all__ = ["CascadeSVM"]
