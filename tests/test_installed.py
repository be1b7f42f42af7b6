"""Versions in another interpreter, which does not have Launch."""

import sys
from pathlib import Path

import pytest

from launcher.installed import installed


def test_an_interpreter_without_launch_is_queried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir(tmp_path)
    other = tmp_path / "python"
    # -I: without Launch's source or editable installation on its search path.
    other.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    other.chmod(0o755)
    found = installed(("no-such-package",), str(other))
    assert (found.problem, set(found.versions)) == ("", {"python"})


def test_what_is_no_python_is_said(tmp_path: Path) -> None:
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\necho hello\n")
    assert installed((), str(other)).problem == f"{other} cannot be run: Permission denied"
    other.chmod(0o755)
    assert "it printed 'hello'" in installed(("pip",), str(other)).problem
