"""``python -m spliter`` is the ``spliter`` command."""

from __future__ import annotations

import runpy

if __name__ == "__main__":
    # Run by name: the core imports no other package of the project.
    runpy.run_module("spliter_experiments", run_name="__main__", alter_sys=True)
