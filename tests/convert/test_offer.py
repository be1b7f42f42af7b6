"""A job whose weights must be converted first says so, with a command line that works as printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.cli import main
from launcher.compose import compose
from launcher.convert.offer import Offer, offered
from launcher.mapping.backend import get_backend

_NEEDED = {
    "Megatron-LM reads its own checkpoints only": ("backend=megatron_lm",),
    "MindSpeed-LLM before it converted at start": ("backend=mindspeed", "backend.version=2.1.0"),
    "Megatron-SWIFT before it read safetensors": ("backend=megatron", "backend.version=3.6.4"),
    "a named checkpoint that does not exist yet": (
        "backend=megatron",
        "checkpoint.load=converted",
        "checkpoint.finetune=true",
    ),
}
_NOT_NEEDED = {
    "it reads safetensors": ("backend=megatron",),
    "it converts at start": ("backend=mindspeed",),
    "it reads the folder": ("backend=mindformers",),
    "random weights": ("backend=megatron_lm", "model.pretrained=false"),
    "a run that goes on": ("backend=megatron_lm", "checkpoint.load=own", "checkpoint.finetune=false"),
}
_LAYOUT = ("parallel.tp=2", "parallel.pp=2")


def _offer(folder: Path, args: tuple[str, ...], there: tuple[str, ...] = ()) -> Offer | None:
    job = compose([f"model.path={folder}", *_LAYOUT, *args])
    backend = get_backend(str(job.backend.name))
    return offered(job, backend, backend.version(job.backend.version), exists=lambda path: path in there)


@pytest.mark.parametrize("args", _NEEDED.values(), ids=_NEEDED.keys())
def test_the_offered_command_converts_with_the_layout_of_the_job(
    args: tuple[str, ...],
    model: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    offer = _offer(model("qwen3"), args)
    assert offer is not None
    assert set(_LAYOUT) < set(offer.command)
    assert main([*offer.command[1:]]) == 0
    assert (tmp_path / offer.folder).is_dir()
    assert "every byte matches" in capsys.readouterr().out
    assert _offer(model("qwen3"), (*args, *offer.overrides), there=(offer.folder,)) is None


@pytest.mark.parametrize("family", ["qwen2", "qwen2_moe", "mixtral", "mistral"])
def test_families_that_mindspeed_does_not_convert_at_start_are_converted_before(
    family: str, model: Callable[[str], Path]
) -> None:
    """MS-CONVERT-FAMILY; Mistral is unknown to its converter."""
    offer = _offer(model(family), ("backend=mindspeed",))
    assert offer is not None
    loaded = ("backend=mindspeed", *offer.overrides)
    assert "checkpoint.finetune=true" in loaded
    assert _offer(model(family), loaded, there=(offer.folder,)) is None


@pytest.mark.parametrize("args", _NOT_NEEDED.values(), ids=_NOT_NEEDED.keys())
def test_nothing_is_offered_where_nothing_is_needed(args: tuple[str, ...], model: Callable[[str], Path]) -> None:
    assert _offer(model("qwen3"), args) is None


def test_dry_run_shows_it_and_run_refuses_with_it(
    model: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    args = ["+recipe=tiny_qwen3", "backend=megatron_lm", f"model.path={model('qwen3')}", "model.pretrained=true"]
    offer = _offer(model("qwen3"), ("+recipe=tiny_qwen3", "backend=megatron_lm", "model.pretrained=true"))
    assert offer is not None
    assert main(["dry-run", *args, *_LAYOUT, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["convert"]["command"] == list(offer.command)
    assert main(["dry-run", *args, *_LAYOUT]) == 1
    assert offer.line in capsys.readouterr().out
    assert main(["run", *args, *_LAYOUT]) == 1
    assert offer.line in capsys.readouterr().err
