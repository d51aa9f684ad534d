"""Graphs whose adjacency lies in CSR row blocks: connected components and PageRank.

Needs numba: ``pip install 'pyspliter[graph]'``.
"""

from __future__ import annotations

from spliter_apps.graph.components import connected_components
from spliter_apps.graph.pagerank import pagerank

__all__ = ["connected_components", "pagerank"]
