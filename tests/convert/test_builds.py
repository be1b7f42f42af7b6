"""What a backend cannot build is refused by the converter and by `check`; what it can has the names that it expects."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launcher.cli import main
from tests.convert.helpers import launch
from tests.convert.unbuildable import UNBUILDABLE, as_scout, deepseek_v3

Zoo = Callable[[str], Path]


@pytest.mark.parametrize("family,make,reported,elsewhere", UNBUILDABLE.values(), ids=UNBUILDABLE)
@pytest.mark.parametrize("version", ["4.6.0", "3.12.6"])
def test_the_converter_and_check_refuse_the_same(
    family: str,
    make: Callable[[Path, Path], Path],
    reported: str,
    elsewhere: str,
    version: str,
    model: Zoo,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, out = make(model(family), tmp_path / "hf"), tmp_path / "out"
    args = ["backend=megatron", f"backend.version={version}"]
    assert launch("hf-to-mcore", "--model", folder, "--out", out, "--backend", "megatron", args[1]) == 1
    captured = capsys.readouterr().err
    assert f"Megatron-SWIFT {version} cannot build this model" in captured
    assert reported in captured
    assert ("--backend megatron_lm" if elsewhere else "works: another model") in captured
    assert not out.exists()
    assert main(["check", *args, "task=pretrain", f"model.path={folder}", "--json"]) == 1
    findings = json.loads(capsys.readouterr().out)["findings"]
    errors = [finding for finding in findings if finding["severity"] == "error"]
    assert any(reported.removesuffix(" of") in finding["message"] for finding in errors), errors


@pytest.mark.parametrize("family,make,reported,elsewhere", UNBUILDABLE.values(), ids=UNBUILDABLE)
def test_without_a_backend_it_is_reported(
    family: str,
    make: Callable[[Path, Path], Path],
    reported: str,
    elsewhere: str,
    model: Zoo,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = make(model(family), tmp_path / "hf")
    assert launch("hf-to-mcore", "--model", folder, "--out", tmp_path / "out") == 0
    assert "Megatron-SWIFT cannot build this model" in (captured := capsys.readouterr().out)
    assert reported in captured
    converted = launch(
        "hf-to-mcore", "--model", folder, "--out", tmp_path / "ms", "--backend", elsewhere or "mindspeed"
    )
    assert converted == (0 if elsewhere else 1)
    assert launch("mcore-to-hf", "--checkpoint", tmp_path / "out", "--out", tmp_path / "back") == 0
    assert launch("verify", folder, tmp_path / "back") == 0


def test_norms_of_some_layers_are_no_model_of_megatron_lm(
    model: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Llama 4 Scout; without a backend its weights go there and back."""
    folder = as_scout(model("llama4_text"), tmp_path / "hf")
    assert launch("hf-to-mcore", "--model", folder, "--out", tmp_path / "x", "--backend", "megatron_lm") == 1
    assert "qk_l2_norm_rope_only" in capsys.readouterr().err
    assert launch("hf-to-mcore", "--model", folder, "--out", tmp_path / "out") == 0
    assert "qk_l2_norm_rope_only" in capsys.readouterr().out
    assert launch("mcore-to-hf", "--checkpoint", tmp_path / "out", "--out", tmp_path / "back") == 0
    assert launch("verify", folder, tmp_path / "back") == 0


LAYERS: dict[str, tuple[int, str | None, bool]] = {
    "all sparse, Megatron-SWIFT": (0, "megatron", False),
    "all sparse, Megatron-LM": (0, "megatron_lm", True),
    "all sparse": (0, None, True),
    "one dense, Megatron-SWIFT": (1, "megatron", False),
    "one dense, Megatron-LM": (1, "megatron_lm", False),
    "all dense, Megatron-SWIFT": (4, "megatron", False),
    "all dense": (4, None, False),
}


@pytest.mark.sample(keep=3)
@pytest.mark.parametrize("dense,backend,stacked", LAYERS.values(), ids=LAYERS)
def test_layers_are_named_as_the_backend_names_them(
    dense: int, backend: str | None, stacked: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """mcore-bridge makes a list of first_k_dense_replace also of 0, and megatron-core then stores each layer."""
    folder, out, back = deepseek_v3(tmp_path / "hf", dense), tmp_path / "out", tmp_path / "back"
    args = ["--backend", backend] if backend else []
    assert launch("hf-to-mcore", "--model", folder, "--out", out, *args) == 0
    captured = capsys.readouterr().out
    assert ("names the layers of this model differently" in captured) is (dense == 0 and backend is None)
    from launcher.convert.containers import torch_dist

    keys = {chunk.key for chunk in torch_dist.read(out, wanted=lambda key: True).chunks}
    assert ("decoder.layers.input_layernorm.weight" in keys) is stacked
    assert ("decoder.layers.3.input_layernorm.weight" in keys) is not stacked
    assert launch("mcore-to-hf", "--checkpoint", out, "--out", back) == 0
    assert launch("verify", folder, back) == 0


@pytest.mark.parametrize("version", ["4.6.0", "3.12.6", "3.6.4"])
def test_layers_that_are_all_dense_are_accepted_by_both(
    version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = deepseek_v3(tmp_path / "hf", 4)
    args = ["backend=megatron", f"backend.version={version}"]
    assert launch("hf-to-mcore", "--model", folder, "--out", tmp_path / "out", "--backend", "megatron", args[1]) == 0
    capsys.readouterr()
    main(["check", *args, "task=pretrain", f"model.path={folder}", "--json"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert not [each["message"] for each in findings if "dense" in each["message"] and each["severity"] == "error"]


def test_megatron_lm_has_no_pattern_without_experts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = deepseek_v3(tmp_path / "hf", 4)
    assert launch("hf-to-mcore", "--model", folder, "--out", tmp_path / "out", "--backend", "megatron_lm") == 1
    assert "the pattern of layers needs more layers than dense ones" in capsys.readouterr().err


@pytest.mark.parametrize("dense", [0, 1, 2])
@pytest.mark.parametrize("every", [1, 2, 3])
def test_the_stored_arguments_say_which_layers_have_experts(dense: int, every: int) -> None:
    from launcher.convert.formats.arguments import _frequency
    from launcher.job.model import Model

    made: Any = Model(
        num_hidden_layers=7,
        num_experts=4,
        first_k_dense_replace=dense,
        moe_layer_freq=every,
        model_type="deepseek_v3",
    )
    for stack in (None, False):
        found = _frequency(made, stack)
        kinds = [int(layer % found == 0) for layer in range(7)] if isinstance(found, int) else found
        assert kinds == [int(made.has_experts_at(layer)) for layer in range(7)]


OTHERWISE = {
    "DeepSeek-V3.2, Megatron-LM": ("deepseek_v32", "megatron_lm", "0.16.1", "its indexer rotates the last dimensions"),
    "DeepSeek-V3.2, MindSpeed-LLM": ("deepseek_v32", "mindspeed", "26.1.0", "indexer"),
    "Qwen3-Next, Megatron-LM": ("qwen3_next", "megatron_lm", "0.16.1", "it orders the heads of linear attention"),
    "Qwen3-Next, Megatron-SWIFT 3": ("qwen3_next", "megatron", "3.12.6", "how 3.12.6 stores them is not known"),
}


@pytest.mark.parametrize("name,backend,version,why", OTHERWISE.values(), ids=OTHERWISE)
def test_weights_that_a_backend_arranges_differently_are_refused(
    name: str, backend: str, version: str, why: str, model: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ("--model", model(name), "--out", tmp_path / "out")
    assert launch("hf-to-mcore", *args, "--backend", backend, f"backend.version={version}") == 1
    shown = capsys.readouterr().err
    assert f"weights of {name} are not converted for" in shown
    assert why in shown
    works = shown.partition("works: ")[2].split(" · ")[0].split()
    assert launch("hf-to-mcore", *args, "--backend", backend, *works, "--dry-run") == 0
    assert not (tmp_path / "out").exists()


def test_each_backend_that_is_offered_converts_the_model(
    model: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ("hf-to-mcore", "--model", model("ernie4_5_mixed"))
    assert launch(*args, "--out", tmp_path / "out", "--backend", "megatron") == 1
    offered = capsys.readouterr().err.partition("works: ")[2].split(" · ")
    assert [launch(*args, "--out", tmp_path / each.split()[1], *each.split()) for each in offered] == [0, 0]


@pytest.mark.parametrize("name", ["olmoe", "deepseek_v32", "qwen3_next"])
def test_a_format_in_which_nothing_loads_the_family_is_refused(
    name: str, model: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert launch("hf-to-mcore", "--model", model(name), "--out", tmp_path / "out", "--format", "legacy") == 1
    shown = capsys.readouterr().err
    assert f"nothing loads {name} in this format: Megatron-LM" in shown
    assert "works: --backend megatron" in shown
    assert not (tmp_path / "out").exists()


def test_a_checkpoint_that_one_stack_does_not_load_says_so(
    model: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert launch("hf-to-mcore", "--model", model("deepseek_v32"), "--out", tmp_path / "out") == 0
    assert "Megatron-LM does not load this checkpoint: its indexer" in capsys.readouterr().out


REFUSED: dict[str, tuple[str, tuple[str, ...]]] = {
    "mistral": ("mistral", ("--backend", "megatron")),
    "mistral in MindFormers": ("mistral", ("--backend", "mindformers")),
    "a head of another width": ("mistral", ("--backend", "mindformers", "--set", "use_legacy=true")),
    "gpt_oss": ("gpt_oss", ("--backend", "mindspeed")),
    "a vision tower": ("qwen3_vl", ("--format", "legacy")),
    "an indexer": ("glm_moe_dsa", ("--backend", "megatron_lm")),
    "dense layers between": ("qwen2_moe_mixed", ("--backend", "megatron")),
    "dense layers between in MindFormers": ("qwen2_moe_mixed", ("--backend", "mindformers")),
}


@pytest.mark.parametrize("name,target", REFUSED.values(), ids=REFUSED)
def test_every_backend_that_is_offered_converts_the_model(
    name: str, target: tuple[str, ...], model: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ("hf-to-mcore", "--model", model(name), "--out", tmp_path / "out")
    assert launch(*args, *target) == 1
    offered = re.findall(r"--backend (\w+)", capsys.readouterr().err.partition("works:")[2])
    assert offered
    for backend in offered:
        assert launch(*args, "--dry-run", "--backend", backend) == 0


UNREAD = {
    "torch_dist for MindFormers": ("mindformers", ("--format", "torch_dist", "--layers", "local")),
    "torch files for Megatron-SWIFT 4": ("megatron", ("--format", "legacy")),
}


@pytest.mark.parametrize("backend,words", UNREAD.values(), ids=UNREAD)
def test_a_format_that_the_backend_does_not_load_is_refused(
    backend: str, words: tuple[str, ...], model: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ("hf-to-mcore", "--model", model("qwen3_moe"), "--out", tmp_path / "out", "--backend", backend)
    assert launch(*args, *words) == 1
    shown = capsys.readouterr().err
    assert "does not load it" in shown
    assert shown.strip().endswith(f"works: without {', '.join(words[::2])}")
    assert launch(*args, "--dry-run") == 0


def test_an_older_version_that_loads_a_format_gets_it(model: Zoo, tmp_path: Path) -> None:
    args = ("hf-to-mcore", "--model", model("qwen3_moe"), "--out", tmp_path / "out", "--backend", "megatron")
    assert launch(*args, "--format", "legacy", "backend.version=3.12.6", "--dry-run") == 0


LACKING = {
    "options": ("glm_moe_dsa", ("--backend", "mindformers", "--set", "per_rank=true"), "--set"),
    "formats": ("glm_moe_dsa", ("--backend", "mindspeed", "--format", "legacy"), "--format"),
    "formats that no backend loads": ("qwen3_vl", ("--format", "legacy"), "--format"),
}


@pytest.mark.parametrize("name,target,lacking", LACKING.values(), ids=LACKING)
def test_offered_backends_say_what_to_leave_out(
    name: str, target: tuple[str, ...], lacking: str, model: Zoo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert launch("hf-to-mcore", "--model", model(name), "--out", tmp_path / "out", *target) == 1
    assert f"works: --backend megatron without {lacking}\n" in capsys.readouterr().err
