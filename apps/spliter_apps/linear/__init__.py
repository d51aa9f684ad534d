"""Models from the covariance of the columns, which one pass computes: PCA and linear regression."""

from __future__ import annotations

from spliter_apps.linear.pca import PCA
from spliter_apps.linear.regression import LinearRegression, Ridge

__all__ = ["PCA", "LinearRegression", "Ridge"]
