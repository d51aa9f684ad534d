"""A run that must have an engine cannot pass by skipping: what conftest.py promises."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.conftest import RunPython

pytestmark = pytest.mark.thorough

NEEDS_UNKNOWN = """
import pytest

@pytest.mark.backend("nosuch")
def test_needs_it():
    raise AssertionError("ran without its engine")
"""
SKIPS_ITSELF = """
import pytest

@pytest.mark.backend("local")
def test_skips():
    pytest.skip("not today")
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copy(Path(__file__).parent / "conftest.py", tmp_path)
    return tmp_path


def test_unusable_engine_skips_with_the_reason(project: Path, run_python: RunPython) -> None:
    (project / "test_it.py").write_text(NEEDS_UNKNOWN + SKIPS_ITSELF, encoding="utf-8")
    done = run_python("-m", "pytest", "-rs")
    assert done.returncode == pytest.ExitCode.OK
    assert "there is no backend 'nosuch'" in done.stdout
    assert "not today" in done.stdout
    assert "2 skipped" in done.stdout


def test_expected_engine_that_is_not_usable_ends_the_run(
    project: Path, run_python: RunPython
) -> None:
    (project / "test_it.py").write_text(NEEDS_UNKNOWN, encoding="utf-8")
    done = run_python("-m", "pytest", "--expect-backends=local,nosuch")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "--expect-backends: nosuch: there is no backend 'nosuch'" in done.stderr


def test_skip_of_an_expected_engine_is_a_failure(project: Path, run_python: RunPython) -> None:
    (project / "test_it.py").write_text(SKIPS_ITSELF, encoding="utf-8")
    done = run_python("-m", "pytest", "--expect-backends=local")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "not today" in done.stdout
