"""HTML representations of Split and Partition for notebooks."""

from __future__ import annotations

from spliter.html._tables import partition_html, split_html, text_html

__all__ = ["partition_html", "split_html", "text_html"]
