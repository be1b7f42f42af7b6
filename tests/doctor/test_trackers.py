"""`launch doctor` on Weights & Biases: the package, and the key with which it logs in."""

from pathlib import Path

import pytest

from launcher.doctor import trackers
from launcher.doctor.check import ERROR, OK, WARNING, Check
from launcher.installed import Installed
from launcher.job import with_values
from tests.conftest import make_job

HERE = Installed(versions={"wandb": "0.31.0", "tensorboard": "2.20.0"})


def checks(monkeypatch: pytest.MonkeyPatch, found: Installed, env: dict[str, str], home: Path) -> list[Check]:
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(trackers, "installed", lambda names, python: found)
    return list(trackers.wandb(with_values(make_job(), {"logging.wandb_project": "p"}), env))


def test_a_job_without_wandb_is_not_asked() -> None:
    assert not list(trackers.wandb(make_job(), {}))


def test_a_missing_package_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (check,) = checks(monkeypatch, Installed(versions={}), {"WANDB_API_KEY": "x"}, tmp_path)
    assert (check.verdict, "pip install wandb" in check.works) == (ERROR, True)


def test_without_tensorboard_nothing_arrives_and_that_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = checks(monkeypatch, Installed(versions={"wandb": "0.31.0"}), {"WANDB_MODE": "offline"}, tmp_path)
    assert [(check.what, check.verdict) for check in found] == [("tensorboard", WARNING), ("wandb", OK)]


@pytest.mark.parametrize(
    ("env", "netrc", "verdict"),
    [
        ({}, "", WARNING),
        ({"WANDB_API_KEY": "x"}, "", OK),
        ({"WANDB_MODE": "offline"}, "", OK),
        ({"WANDB_MODE": "online"}, "", WARNING),
        ({}, "machine api.wandb.ai login user password x\n", OK),
        ({}, "machine github.com login user password x\n", WARNING),
        ({"WANDB_BASE_URL": "https://wandb.ours:8080"}, "machine wandb.ours login user password x\n", OK),
        ({}, "no netrc at all {", WARNING),
    ],
)
def test_a_key_is_looked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, env: dict[str, str], netrc: str, verdict: str
) -> None:
    if netrc:
        (tmp_path / ".netrc").write_text(netrc)
        (tmp_path / ".netrc").chmod(0o600)
    (check,) = checks(monkeypatch, HERE, env, tmp_path)
    assert check.verdict == verdict
    assert "password" not in check.line()


def test_the_job_s_own_mode_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(trackers, "installed", lambda names, python: HERE)
    job = with_values(make_job(), {"logging.wandb_project": "p", "backend.env": {"WANDB_MODE": "offline"}})
    assert [check.verdict for check in trackers.wandb(job, {})] == [OK]
