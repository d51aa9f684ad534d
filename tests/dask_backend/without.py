"""Do without features of Dask that it does not document: in this process, and in clusters.

A program, or a preload of Dask's workers, that imports this does without the features that the
environment variable names, ``all`` or their names separated by commas.
"""

from __future__ import annotations

import os
from typing import Final

from spliter_backends.dask import internals
from spliter_backends.dask.features import FEATURES

VARIABLE: Final = "SPLITER_TESTS_WITHOUT"
NAMES: Final = [name for name in os.environ.get(VARIABLE, "").split(",") if name]
OFF: Final = set(FEATURES) if NAMES == ["all"] else set(NAMES)

assert internals.client.batches is FEATURES["batches"], "the features have been defined"
for _name in OFF:
    FEATURES[_name].turn_off()
