"""Pipelines over a Split: passes of one task per partition."""
