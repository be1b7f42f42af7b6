"""Packages that are required at import and never called."""

import importlib
import importlib.metadata
import sys

import pytest

from launcher.rehearse.cpu.unused_packages import install


def test_missing_packages_can_be_imported_and_have_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    install({"launch_absent_package": "1.2.3"}, ("inner",))
    assert importlib.metadata.version("launch_absent_package") == "1.2.3"
    assert importlib.import_module("launch_absent_package.inner").__name__ == "launch_absent_package.inner"


def test_installed_packages_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = [*sys.path]
    install({"pytest": "0.0.1"})
    assert sys.path == before
