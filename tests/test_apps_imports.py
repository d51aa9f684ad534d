"""What an import of the applications costs, and what it says where scikit-learn is missing."""

from __future__ import annotations

import pytest

import spliter_apps
from tests.conftest import RunPython

WITHOUT = """
import sys
sys.modules["sklearn"] = None
import numpy as np
from spliter_apps import histogramdd
assert histogramdd([np.ones(3)], 2)[0].sum() == 3
try:
    from spliter_apps import KMeans
except ImportError as error:
    print(error)
"""


def test_every_estimator_is_there() -> None:
    assert set(spliter_apps.__all__) <= set(dir(spliter_apps))
    for name in spliter_apps.__all__:
        assert getattr(spliter_apps, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'KMedians'"):
        spliter_apps.KMedians  # noqa: B018


def test_scikit_learn_is_imported_on_first_use(run_python: RunPython) -> None:
    done = run_python("-c", "import sys, spliter_apps; print('sklearn' in sys.modules)")
    assert done.stdout == "False\n", done.stderr


def test_histogram_without_scikit_learn(run_python: RunPython) -> None:
    done = run_python("-c", WITHOUT)
    assert done.returncode == 0, done.stderr
    assert "KMeans is not usable here" in done.stdout
    assert "pip install 'pyspliter[apps]'" in done.stdout
