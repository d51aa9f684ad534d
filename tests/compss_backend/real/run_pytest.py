"""The application that ``runcompss`` starts: pytest, so that tests are the main program."""

from __future__ import annotations

import sys

import pytest

if __name__ == "__main__":
    sys.exit(int(pytest.main(sys.argv[1:])))
