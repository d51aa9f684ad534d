"""Report processes of a cluster that lack this version of SplIter, with advice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import spliter

VERSION: Final = spliter.__version__
"""Read by name in other processes, so that importing it there tests both packages."""

MAX_NAMED: Final = 5
"""Maximum number of processes named in a message."""

PAGE: Final = "docs/clusters.md"


def wrong_versions(found: Mapping[str, str | None]) -> str:
    """Return a message about processes that lack this version of SplIter, empty if none does.

    `found` is the version by process; None if SplIter cannot be imported there.

    Examples
    --------
    >>> wrong_versions({"scheduler": VERSION})
    ''
    >>> print(wrong_versions({"scheduler": VERSION, "tcp://b:1": None}))
    tcp://b:1 has no spliter, this program has ...: install the same version there ...
    """
    wrong = [
        f"{process} has {f'spliter {version}' if version else 'no spliter'}"
        for process, version in sorted(found.items())
        if version != spliter.__version__
    ]
    if not wrong:
        return ""
    more = [f"{len(wrong) - MAX_NAMED} more processes too"] if len(wrong) > MAX_NAMED else []
    return (
        f"{'; '.join(wrong[:MAX_NAMED] + more)}, this program has {spliter.__version__}: install "
        f"the same version there (pip install 'pyspliter[dask]=={spliter.__version__}') in the "
        f"environment or image of each process; see {PAGE}, "
        "'What has to be installed where'"
    )
