"""Table of the apps that ``spliter compare`` offers; importing it imports all of them."""

from __future__ import annotations

from typing import Any

from spliter_experiments.compare.workloads.csvm import CascadeSvm
from spliter_experiments.compare.workloads.histogram import Histogram
from spliter_experiments.compare.workloads.kmeans import KMeans
from spliter_experiments.compare.workloads.knn import Neighbors
from spliter_experiments.compare.workloads.schedules import Schedules
from spliter_experiments.compare.workloads.sums import Sum
from spliter_experiments.compare.workloads.workload import App

APPS: dict[str, type[App[Any]]] = {
    app.name: app for app in (Sum, Histogram, KMeans, CascadeSvm, Neighbors, Schedules)
}
