"""k-means clustering of distributed points, with scikit-learn's interface."""

from __future__ import annotations

from spliter_apps.kmeans.estimator import KMeans

__all__ = ["KMeans"]
