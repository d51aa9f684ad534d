"""``python -m spliter_experiments`` is the ``spliter`` command."""

from __future__ import annotations

from spliter_experiments.cli import main

if __name__ == "__main__":
    main()
