"""Leave out of texts and logs what was passed to be let in.

Hidden by its place, whatever its name: the user part, parameters, query and fragment of each URL of
a chain, and the values of all options. Libraries write them as they are, unquoted, or quoted once
more; each character is recognised in any of these forms.
"""

from __future__ import annotations

import functools
import json
import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Final, TypeAlias
from urllib.parse import unquote, unquote_plus

Hide: TypeAlias = Callable[[str], str]

HIDDEN: Final = "***"

ALONE: Final = 4
"""Shorter values are hidden only where they stand alone: a 1 is a part of many texts."""

PLAIN: Final = 1000
"""Smaller numbers in options are seconds and sizes, not secrets, and stand in many texts."""

_CHAIN: Final = re.compile(r"::(?=[\w+.-]*://)")
_URL: Final = re.compile(r"(?s)([A-Za-z][\w+.-]*://)?([^/?#;]*)([^?#;]*)(.*)")
"""Scheme, authority, path, and what follows."""


def shown(url: str) -> str:
    """Return the schemes, hosts and paths of a URL or a chain of URLs.

    An ``@`` behind the host may end a user part that was not quoted: all of that URL is hidden.

    Examples
    --------
    >>> shown("redis://ada:told@cache:6379/0?db=1"), shown("zip://{}::https://told@host/all.zip")
    ('redis://***@cache:6379/0?***', 'zip://{}::https://***@host/all.zip')
    >>> shown("redis://:to/ld@cache")
    'redis://***'
    """
    return "::".join(map(_shown, _CHAIN.split(url)))


def _shown(url: str) -> str:
    parts: tuple[str, ...] = _URL.findall(url)[0]
    scheme, authority, path, rest = parts
    if "@" in path + rest:
        return scheme + HIDDEN
    user, at, host = authority.rpartition("@")
    return scheme + (user and HIDDEN) + at + host + path + (rest and rest[0] + HIDDEN)


def hider(url: str, options: Any) -> Hide:
    """Return a function that hides in a text what is secret in a URL and in options.

    Examples
    --------
    >>> hide = hider("https://host/{}?token=to%2Fld", {"headers": [("Authorization", "Bearer me")]})
    >>> hide("neither 'to/ld' nor https://host/1?token=to%252Fld by me, for some")
    "neither '***' nor https://host/1?*** by ***, for some"
    """
    found: set[str] = set()
    _add_url(url, found)
    for value in _leaves(options):
        _add_values(value, found)
        if "://" in value:
            _add_url(value, found)
    secrets = sorted(found - {""}, key=len, reverse=True)
    pattern = re.compile("|".join(map(_pattern, secrets)) or r"\b\B", re.IGNORECASE)
    return lambda text: pattern.sub(HIDDEN, text)


def _add_url(url: str, found: set[str]) -> None:
    for one in _CHAIN.split(url):
        _, authority, path, rest = _URL.findall(one)[0]
        user = authority.rpartition("@")[0]
        tail = re.split(r"/|\{\}", rest[1:])  # also around the key
        for text in (user, user.partition(":")[2], *user.split(":"), rest[1:], *tail):
            _add_values(text, found)
            _add_values(text.replace("{{", "{").replace("}}", "}"), found)
        if "@" in path + rest:
            found.update(re.split("[/?#;&:@=]", authority + path + rest))


def _leaves(options: Any) -> Iterator[str]:
    """Yield the values in options as texts, without the names of mappings."""
    if isinstance(options, bytes | bytearray):
        yield options.decode(errors="replace")
    elif isinstance(options, Mapping):
        yield from _leaves(list(options.values()))
    elif isinstance(options, Collection) and not isinstance(options, str):
        for value in options:
            yield from _leaves(value)
    elif options is not None and not (isinstance(options, int | float) and abs(options) < PLAIN):
        yield str(options)
        attributes = getattr(options, "__dict__", {}).values()  # such as those of httpx.DigestAuth
        yield from _leaves([one for one in attributes if isinstance(one, str | bytes)])


def _add_values(text: str, found: set[str]) -> None:
    """Add a text and the values in it, as in a query or in a string of ``name=value;``."""
    if text in found:
        return
    found.add(text)
    for plain in (text, unquote(text), unquote_plus(text)):
        for part in re.split(r"[\s&;,?#]+", plain):
            _add_values(part, found)
            value = part.partition("=")[2]
            if value.strip("="):  # else the end of base64
                _add_values(value, found)


def _pattern(secret: str) -> str:
    pattern = "".join(map(_forms, secret))
    return pattern if len(secret) >= ALONE else rf"(?<!\w){pattern}(?!\w)"


@functools.cache
def _forms(character: str) -> str:
    """Return a pattern of a character as it is, quoted in a URL, or escaped in a literal."""
    if character.isalnum() and character.isascii():
        return character
    encoded = character.encode(errors="surrogatepass")
    forms = {character, ascii(character)[1:-1], json.dumps(character)[1:-1], "\\" + character}
    forms |= {repr(encoded)[2:-1], "+" if character == " " else character}
    quoted = "".join(f"%{byte:02X}" for byte in encoded)
    return f"(?:{quoted}|{'|'.join(re.escape(one) for one in sorted(forms))})"


HIDE: Final[ContextVar[Hide | None]] = ContextVar("HIDE", default=None)
"""Applied to what is logged in this context, by any library."""


def _make_record(make: Callable[..., logging.LogRecord], *args: Any, **kwargs: Any) -> Any:
    record = make(*args, **kwargs)
    hide = HIDE.get()
    if hide is not None:
        with suppress(Exception):  # of arguments that do not fit, which handlers report
            record.msg, record.args = hide(record.getMessage()), ()
        if record.exc_info:
            record.exc_text = hide(logging.Formatter().formatException(record.exc_info))
            record.exc_info = None
    return record


# Loggers have no filter for those below them, and the libraries have many.
logging.setLogRecordFactory(functools.partial(_make_record, logging.getLogRecordFactory()))
