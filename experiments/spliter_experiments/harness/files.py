"""Write files completely or not at all, and remove what killed commands have left."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path

import psutil


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
