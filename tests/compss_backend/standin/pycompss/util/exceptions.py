"""Errors of the binding."""

from __future__ import annotations


class PyCOMPSsException(Exception):  # noqa: N818 -- its name
    """Something is wrong with a task or its arguments."""


class SerializerException(Exception):  # noqa: N818 -- its name
    """An object could not be written or read."""
