"""Griffe extension: convert the reStructuredText in docstrings to Markdown.

It converts ``:class:`~spliter.Split``` (as code), ``double backticks``, a paragraph that ends in
``::`` (a code block follows), and ``.. math::``.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|exc|obj):`~?([^`]+)`")
_MATH = re.compile(r"^( *)\.\. math:: *(.+)$|:math:`([^`]+)`", re.MULTILINE)


class DocstringRoles(griffe.Extension):  # type: ignore[misc, unused-ignore]
    """Rewrites each docstring once the whole package is known."""

    def on_object(self, *, obj: griffe.Object, loader: Any, **_: Any) -> None:
        """Rewrite the docstring of one module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    """Return a docstring in Markdown.

    Parameters
    ----------
    text : str
        The docstring, with roles of Sphinx.

    Returns
    -------
    str
        The docstring without them.

    Examples
    --------
    >>> as_markdown("as :func:`spliter.split` does::")
    'as `spliter.split` does:'
    """
    text = _ROLE.sub(r"`\1`", text)
    text = _MATH.sub(lambda found: f"{found[1] or ''}`{found[2] or found[3]}`", text)
    text = text.replace("``", "`")
    return re.sub(r"(?m)::$", ":", text)
