"""Held against the real thing: megatron-core's GPTModel on CPU loads what was written and computes the same logits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
from core_world import Zygote

from tests.convert import zoo
from tests.convert.core_logits import megatron_argv
from tests.convert.helpers import launch

pytestmark = pytest.mark.slow
TOLERANCE = 1e-4

# megatron-core trains experts under tensor parallelism with sequence parallelism only.
SEQUENCE = ["parallel.tp=2", "parallel.sequence_parallel=true"]
LAYOUTS = {
    "llama tp2": ("llama", ["parallel.tp=2"]),
    "qwen2 tp2": ("qwen2", ["parallel.tp=2"]),
    "qwen3 tied pp2": ("qwen3", ["parallel.pp=2"]),
    "phi3 tp2": ("phi3", ["parallel.tp=2"]),
    "internlm2 tp2": ("internlm2", ["parallel.tp=2"]),
    "internlm3 tp2": ("internlm3", ["parallel.tp=2"]),
    "ernie4_5 tp2": ("ernie4_5_mixed", ["parallel.tp=2"]),
    "qwen3_moe_mixed ep2": ("qwen3_moe_mixed", ["parallel.ep=2"]),
    "qwen2_moe ep2": ("qwen2_moe", ["parallel.ep=2"]),
    "qwen3_moe tp2 ep2": ("qwen3_moe", [*SEQUENCE, "parallel.ep=2", "parallel.etp=1"]),
    "mixtral tp2 etp2": ("mixtral", SEQUENCE),
    "deepseek_v2_lite tp2": ("deepseek_v2_lite", SEQUENCE),
    "gpt_oss tp2 ep2": ("gpt_oss", [*SEQUENCE, "parallel.ep=2", "parallel.etp=1"]),
    "llama4_text tp2 ep2": ("llama4_text", [*SEQUENCE, "parallel.ep=2", "parallel.etp=1"]),
    "glm4_moe tp2 ep2": ("glm4_moe", [*SEQUENCE, "parallel.ep=2", "parallel.etp=1"]),
    "glm4_moe_lite tp2": ("glm4_moe_lite", SEQUENCE),
    "deepseek_v3 pp2": ("deepseek_v3", ["parallel.pp=2"]),
    "deepseek_v3 ep2": ("deepseek_v3", ["parallel.ep=2"]),
    "kimi_k2 tp2": ("deepseek_v3_kimi", SEQUENCE),
}


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    pytest.importorskip("megatron.core", reason="the extra `rehearsal` is not installed")
    with Zygote(tmp_path_factory.mktemp("ranks")) as process:
        yield process


@pytest.fixture
def core(zygote: Zygote, tmp_path: Path) -> Callable[..., Any]:
    """Checkpoint, Hugging Face folder and overrides to the logits of megatron-core."""

    def logits(checkpoint: Path, folder: Path, tokens: Any, overrides: list[str], ranks: int) -> Any:
        numpy.save(tmp_path / "tokens.npy", tokens)
        out = tmp_path / "logits.npy"
        argv = megatron_argv(str(folder), *overrides, world=ranks)
        args = [str(checkpoint), str(tmp_path / "tokens.npy"), str(out), *argv]
        codes, log = zygote.call("tests.convert.core_logits:main", args, ranks=ranks)
        assert codes == [0] * ranks, log
        return numpy.load(out)

    return logits


def _tokens() -> Any:
    return numpy.random.default_rng(0).integers(0, zoo.BASE["vocab_size"], (2, 32))


# Families that megatron-core 0.16.1 computes in another way than they were trained (backends/megatron_lm/families.py),
# or with kernels for GPUs only. tests/backends/megatron/test_bridge_checkpoint.py computes them with mcore-bridge.
NOT_COMPUTED = ("qwen3_next", "deepseek_v32", "glm_moe_dsa", "glm_moe_dsa_shared")
# Families whose layers only MindSpeed-LLM has; tools/parity trains them there from converted weights.
OF_MINDSPEED = ("gemma2",)
# Compressed attention is in megatron-core's development branch only (tests/backends/megatron/test_dev_core.py).
OF_DEV = ("deepseek_v4",)
NOT_COMPARED = (*NOT_COMPUTED, *OF_MINDSPEED, *OF_DEV, *zoo.BRIDGED, *zoo.ENCLOSED)


@pytest.mark.parametrize("name", [name for name in zoo.MODELS if name not in NOT_COMPARED])
def test_every_family_computes_the_same(
    name: str, model: Callable[[str], Path], core: Callable[..., Any], tmp_path: Path
) -> None:
    folder, out, tokens = model(name), tmp_path / "core", _tokens()
    assert launch("hf-to-mcore", "--model", folder, "--out", out, "--layers", "local") == 0
    difference = numpy.abs(core(out, folder, tokens, [], 1) - zoo.logits(folder, tokens)).max()
    assert difference < TOLERANCE


@pytest.mark.parametrize("name,overrides", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_every_layout_computes_the_same(
    name: str, overrides: list[str], model: Callable[[str], Path], core: Callable[..., Any], tmp_path: Path
) -> None:
    folder, out, tokens = model(name), tmp_path / "core", _tokens()
    assert launch("hf-to-mcore", "--model", folder, "--out", out, "--layers", "local", *overrides) == 0
    difference = numpy.abs(core(out, folder, tokens, overrides, 2) - zoo.logits(folder, tokens)).max()
    assert difference < TOLERANCE


LEGACY = {
    **LAYOUTS,
    "llama": ("llama", []),
    "qwen2 uneven": ("qwen2", ["parallel.pp=2", "parallel.first_stage_layers=3"]),
    "llama tied pp2": ("llama_tied", ["parallel.pp=2"]),
    "qwen3_moe tp2 ep2 etp1": ("qwen3_moe", [*SEQUENCE, "parallel.ep=2", "parallel.etp=1"]),
    "deepseek_v2 tp2": ("deepseek_v2", SEQUENCE),
    "deepseek_v3": ("deepseek_v3", []),
}


@pytest.mark.parametrize("name,overrides", LEGACY.values(), ids=LEGACY.keys())
def test_every_legacy_layout_computes_the_same(
    name: str, overrides: list[str], model: Callable[[str], Path], core: Callable[..., Any], tmp_path: Path
) -> None:
    folder, out, tokens = model(name), tmp_path / "core", _tokens()
    args = ["--layers", "local", "--format", "legacy", *overrides]
    assert launch("hf-to-mcore", "--model", folder, "--out", out, *args) == 0
    ranks = 2 if overrides else 1
    difference = numpy.abs(core(out, folder, tokens, overrides, ranks) - zoo.logits(folder, tokens)).max()
    assert difference < TOLERANCE


def test_a_wrong_permutation_is_noticed(
    model: Callable[[str], Path], core: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: with query groups taken apart (all queries, all keys, all values) the logits must differ."""
    from launcher.convert.layouts import core as core_layout

    def apart(_model: Any, instance: Any) -> Any:
        from launcher.convert.slices import rows

        boxes, at = [], 0
        for name, shape in zip(instance.logical, instance.shapes, strict=True):
            boxes.append(rows(name, shape, 0, shape[0], stored_first=at))
            at += shape[0]
        return (at, *instance.shapes[0][1:]), tuple(boxes)

    monkeypatch.setattr(core_layout, "_by_query_group", apart)
    folder, out, tokens = model("llama"), tmp_path / "core", _tokens()
    assert launch("hf-to-mcore", "--model", folder, "--out", out, "--layers", "local") == 0
    assert numpy.abs(core(out, folder, tokens, [], 1) - zoo.logits(folder, tokens)).max() > 100 * TOLERANCE


TRAINED = {
    "qwen3_moe ep2": ("qwen3_moe", ["parallel.ep=2"], ["--use-distributed-optimizer"]),
    "deepseek_v3 tp2": ("deepseek_v3", SEQUENCE, []),
    "qwen3 tied pp2": ("qwen3", ["parallel.pp=2"], []),
}


@pytest.mark.parametrize("name,overrides,more", TRAINED.values(), ids=TRAINED.keys())
def test_trained_weights_come_back(
    name: str,
    overrides: list[str],
    more: list[str],
    model: Callable[[str], Path],
    zygote: Zygote,
    core: Callable[..., Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Converted, trained some steps on two ranks with optimizer states saved, converted back, read by transformers."""
    folder, start, saved, back = model(name), tmp_path / "start", tmp_path / "saved", tmp_path / "back"
    assert launch("hf-to-mcore", "--model", folder, "--out", start, "--layers", "local", *overrides) == 0
    argv = megatron_argv(str(folder), *overrides, "schedule.train_iters=3", world=2)
    places = ["--load", str(start), "--finetune", "--save", str(saved), "--save-interval", "3"]
    assert len(zygote.run([*argv, *places, *more], ranks=2, output_dir=tmp_path / "run").losses) == 3
    assert launch("mcore-to-hf", "--checkpoint", saved, "--model", folder, "--out", back) == 0
    assert "optimizer state, not a weight" in capsys.readouterr().out
    tokens = _tokens()
    trained = zoo.logits(back, tokens)
    assert numpy.abs(core(saved, folder, tokens, [], 1) - trained).max() < TOLERANCE
    assert numpy.abs(zoo.logits(folder, tokens) - trained).max() > 100 * TOLERANCE
