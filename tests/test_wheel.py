"""The wheel holds exactly the five packages, and works where only it and NumPy are installed."""

from __future__ import annotations

import os
import shutil
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import spliter
from tests.conftest import ROOT, SOURCE_ROOTS
from tests.running import run_command

pytestmark = pytest.mark.thorough

PACKAGES = ["spliter", "spliter_apps", "spliter_backends", "spliter_experiments", "spliter_slurm"]


def run(*arguments: str, cwd: Path, pythonpath: str = "") -> str:
    done = run_command(
        [sys.executable, *arguments], cwd=cwd, env={**os.environ, "PYTHONPATH": pythonpath}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # From a copy of the whole checkout: the build leaves nothing behind, takes nothing over from
    # an earlier one, and everything that must stay out of the wheel is there to be left out.
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(
        ROOT,
        folder / "source",
        ignore=shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__"),
    )
    # Without isolation: a test run downloads nothing.
    run("-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), cwd=folder / "source")
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    install = ["-m", "pip", "install", "--no-index", "--no-deps", "--target", str(folder)]
    run(*install, str(wheel), cwd=folder)
    return folder


def test_wheel_has_the_four_packages_and_nothing_else(wheel: Path) -> None:
    names = [Path(name) for name in zipfile.ZipFile(wheel).namelist()]
    info = f"pyspliter-{spliter.__version__}.dist-info"
    assert sorted({name.parts[0] for name in names}) == sorted([*PACKAGES, info])
    others = {str(name) for name in names if name.parts[0] != info and name.suffix != ".py"}
    assert others == data_files()
    assert {f"{package}/py.typed" for package in PACKAGES} < others


def data_files() -> set[str]:
    """Return the files in the packages of the checkout that are no modules."""
    return {
        (Path(folder) / name).relative_to(root).as_posix()
        for root in SOURCE_ROOTS
        for package in PACKAGES
        for folder, _, names in os.walk(root / package)
        for name in names
        if "__pycache__" not in folder and not name.endswith(".py")
    }


def test_wheel_has_every_module_of_the_checkout(wheel: Path) -> None:
    expected = {
        path.relative_to(root).as_posix()
        for root in SOURCE_ROOTS
        for package in PACKAGES
        for path in (root / package).rglob("*.py")
    }
    assert expected
    assert expected <= set(zipfile.ZipFile(wheel).namelist())


def test_metadata(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        metadata = Parser().parsestr(archive.read(name).decode())
    assert metadata["Version"] == spliter.__version__
    assert metadata["License-Expression"] == "BSD-3-Clause"
    needed = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert needed == ["numpy>=2.0"]


@pytest.mark.parametrize("package", PACKAGES)
def test_installed_package_is_the_one_imported(site: Path, package: str) -> None:
    where = run(
        "-c", f"import {package}; print({package}.__file__)", cwd=site, pythonpath=str(site)
    )
    assert Path(where.strip()) == site / package / "__init__.py"


LISTING = """
import operator, sys
sys.modules.update(dict.fromkeys(["dask", "distributed", "pandas", "scipy", "sklearn", "zarr"]))
import numpy as np
from spliter import reduce, split, task

@task
def total(partition):
    return sum(float(block.sum()) for block in partition)

partials = [total(partition) for partition in split([np.ones(3), np.ones(4)])]
print(reduce(operator.add, partials).result())
"""


def test_installed_core_needs_numpy_only(site: Path) -> None:
    # None in sys.modules makes the import of that package fail, as if it were not installed.
    assert run("-c", LISTING, cwd=site, pythonpath=str(site)) == "7.0\n"


ABSENT = ["dask", "distributed", "pandas", "ray", "rich", "scipy", "sklearn", "typer", "zarr"]


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["doctor"], 0, 'pip install "pyspliter[experiments]"'),
        (["doctor", "--json"], 0, '"name": "local"'),
        (["doctor", "--require", "dask"], 2, "backend 'dask' is required"),
        (["--version"], 0, f"spliter {spliter.__version__}"),
        (["--help"], 0, "compare SplIter with other ways"),
        (["compare", "histogram", "--rows", "100"], 2, "spliter compare needs dask, distributed"),
    ],
)
def test_command_with_the_core_alone(
    site: Path, arguments: list[str], code: int, told: str
) -> None:
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({ABSENT})); "
        f"sys.argv = ['spliter', *{arguments}]; "
        "from spliter_experiments.__main__ import main; main()"
    )
    done = run_command(
        [sys.executable, "-c", program],
        cwd=site,
        env={**os.environ, "PYTHONPATH": str(site), "COLUMNS": "200"},
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert told in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_installed_command(site: Path) -> None:
    command = site / "bin" / "spliter"
    if sys.platform == "win32":
        pytest.skip("scripts are .exe files there")
    assert "spliter_experiments.__main__" in command.read_text(encoding="utf-8")
    assert "compare" in run(str(command), "--help", cwd=site, pythonpath=str(site))
