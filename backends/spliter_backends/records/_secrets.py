"""Leave passwords out of URLs and of texts that other libraries have written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

HIDDEN: Final = "***"

_SECRET: Final = re.compile(r"pass|pwd|secret|token|key|sig|auth|credential|cookie", re.IGNORECASE)
"""Names of options, and of parameters in URLs, whose values are secrets."""

_HOST: Final = re.compile(r"([^:]+(:\d*)?)?|\[.*\](:\d*)?")


def password_in(url: str) -> str:
    """Return the password in a URL as it is written there; empty without one.

    Examples
    --------
    >>> password_in("redis://:told@cache/0"), password_in("https://host:80/users/@me")
    ('told', '')
    """
    _, is_url, rest = url.partition("://")
    rest = rest if is_url else url
    host = re.split("[/?#]", rest)[0]
    # A password may have slashes that should have been quoted.
    if "@" not in rest or (is_url and "@" not in host and _HOST.fullmatch(host)):
        return ""
    return rest.rpartition("@")[0].partition(":")[2]


def secrets_in(url: str, options: Mapping[str, Any]) -> list[str]:
    """Return the secrets in a URL and in options, the longest first."""
    query = url.partition("?")[2].partition("#")[0]
    parameters = dict(part.partition("=")[::2] for part in query.split("&") if "{" not in part)
    written = {password_in(url), *_values(parameters), *_values(options)}
    return sorted({*written, *map(unquote, written)} - {""}, key=len, reverse=True)


def _values(options: Any, is_secret: bool = False) -> Iterator[str]:
    """Yield the texts in options whose names, or those around them, are those of secrets."""
    if isinstance(options, Mapping):
        for name, value in options.items():
            yield from _values(value, is_secret or _SECRET.search(str(name)) is not None)
    elif isinstance(options, list | tuple):
        for value in options:
            yield from _values(value, is_secret)
    elif is_secret and isinstance(options, str):
        yield options


def without(secrets: Sequence[str], text: str) -> str:
    """Return a text in which secrets are hidden.

    Examples
    --------
    >>> without(["told"], "cannot log in with 'told'")
    "cannot log in with '***'"
    """
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return text
