"""Write files completely or not at all, and remove what killed commands have left."""

from __future__ import annotations

import os
import socket
import tomllib
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from pydantic import ValidationError

MOST_CHARACTERS = 1_000_000
"""Maximum size of a file; many times the longest scenario."""


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML; every error in it is a ValueError with a message.

    >>> parse_toml("nodes = [1, 2]")
    {'nodes': [1, 2]}
    """
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"it has {len(text):,} characters, more than {MOST_CHARACTERS:,}")
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("its values are nested too deeply") from error


def mistakes(error: ValidationError, hidden: Collection[str] = ()) -> str:
    """Return a line for each mistake: the entry, what is wrong with it, and its value.

    `hidden` are keys of the path that pydantic has added: the names of the variants of a union.
    """
    lines = []
    for found in error.errors():
        entry = ".".join(str(key) for key in found["loc"] if key not in hidden)
        given = found["input"]
        shown = f", got {given!r}" if isinstance(given, str | int | float | bool) else ""
        what = found["msg"].removeprefix("Value error, ")
        lines.append(f"  {entry + ': ' if entry else ''}{what}{shown}")
    return "\n".join(lines)


def write_whole(file: Path, content: str | bytes) -> None:
    """Write a file under a temporary name, flush it to the disk, and rename it.

    After an error, the folder is as before.
    """
    partial = file.with_name(f".{file.stem}.{socket.gethostname()}.{os.getpid()}.partial")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as stream:
            stream.write(content.encode() if isinstance(content, str) else content)
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(file)
        _sync_folder(file.parent)
    except OSError:
        with suppress(OSError):
            partial.unlink()
        raise


def clear_partial(folder: Path) -> None:
    """Remove partial files left in subfolders by killed commands of this host."""
    for file in folder.glob(f"*/.*.{socket.gethostname()}.*.partial"):
        pid = file.name.split(".")[-2]
        if pid.isdecimal() and not psutil.pid_exists(int(pid)):
            file.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Flush a folder, so that the new name of a file is on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
