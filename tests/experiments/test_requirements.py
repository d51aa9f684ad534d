"""What engines need is looked for, and advice given that fits what is missing."""

from __future__ import annotations

import sys
from importlib import metadata
from types import SimpleNamespace

import pytest

from spliter_experiments import doctor
from spliter_experiments.doctor import Requirement, requirements


def look() -> dict[str, Requirement]:
    return {need.what: need for need in requirements()}


def versions(monkeypatch: pytest.MonkeyPatch, **known: str) -> None:
    def version(package: str) -> str:
        if package in known:
            return known[package]
        raise metadata.PackageNotFoundError(package)

    monkeypatch.setattr(metadata, "version", version)


def test_packages_of_dataclay(monkeypatch: pytest.MonkeyPatch) -> None:
    versions(monkeypatch, dataclay="4.3.1", redis="7.4.1")
    assert (look()["package dataclay"].found, look()["package redis"].found) == ("4.3.1", "7.4.1")
    versions(monkeypatch, redis="8.0.0")
    assert (look()["package dataclay"].found, look()["package redis"].found) == ("", "")


def test_advice_for_dataclay_knows_the_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 12, 1))
    assert "pyspliter[dataclay]" in look()["package dataclay"].advice
    monkeypatch.setattr(sys, "version_info", (3, 13, 0))
    assert "Python < 3.13" in look()["package dataclay"].advice


def test_store_for_dataclay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_store", lambda: SimpleNamespace(name="some store"))
    assert look()["key-value store"].found == "some store"
    monkeypatch.setattr(doctor, "find_store", lambda: None)
    assert look()["key-value store"].found == ""
    assert "redis-server" in look()["key-value store"].advice


def test_compss() -> None:
    """What it needs is tested with its backend."""
    assert {"COMPSS_HOME", "runcompss", "ssh", "java", "package dislib"} <= set(look())
