"""Our `torch_dist` checkpoints are those of mcore-bridge for the same model: keys, shapes, number formats, bytes."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest

from backends.megatron.rehearse import NATIVE_CPU
from launcher.convert.containers import torch_dist
from launcher.rehearse.native import environment
from tests.convert import zoo
from tests.convert.helpers import launch, with_mtp, with_next_mtp
from tests.convert.unbuildable import UNBUILDABLE, deepseek_v3
from tests.rehearse.native.environments import core_0_17, swift_python, vision_packages
from tests.rehearse.native.runs import Run, run_native
from tests.rehearse.native.tiny_models import make_tokenizer

pytestmark = pytest.mark.slow
# Families, and what ms-swift calls them (it knows no Mixtral).
MODELS = {
    "llama": "llama",
    "llama_tied": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "internlm3": "internlm3",
    "ernie4_5": "ernie4_5",
    "qwen2_moe": "qwen2_moe",
    "qwen3_moe": "qwen3_moe",
    "olmoe": "olmoe",
    "minimax_m2": "minimax_m2",
    "deepseek_v2": "deepseek_v2",
    "deepseek_v2_lite": "deepseek_v2",
    "gpt_oss": "gpt_oss",
    "qwen3_next": "qwen3_next",
    "qwen3_next_mtp": "qwen3_next",
    "qwen2_5_vl": "qwen2_5_vl",
    "qwen3_vl": "qwen3_vl",
    "qwen3_vl_tied": "qwen3_vl",
    "qwen3_vl_moe": "qwen3_vl_moe",
    "qwen3_5": "qwen3_5",
    "qwen3_5_tied": "qwen3_5",
    "qwen3_5_mtp": "qwen3_5",
    "qwen3_5_moe": "qwen3_5_moe",
    "qwen3_5_moe_mtp": "qwen3_5_moe",
    "deepseek_v32_mtp": "deepseek_v32",
    "deepseek_v32": "deepseek_v32",
    "glm_moe_dsa": "glm_moe_dsa",
    "glm4_moe_mtp": "glm4_moe",
    "glm4_moe_lite_mtp": "glm4_moe_lite",
    "deepseek_v3_mtp": "deepseek_v3",
    "deepseek_v3 all sparse": "deepseek_v3",
    "deepseek_v3 all dense": "deepseek_v3",
}
# How Megatron-SWIFT ends on what it cannot build, in its own words.
REFUSED = {
    "mixtral": "is not supported.",
    "llama4_text": "ValueError: model_type: 'llama4_text' not in",
    "llama with biases": "AssertionError: not support",
    "qwen3_moe with a dense layer": "KeyError: 'gate.weight'",
    "qwen3_moe with dense layers in between": "KeyError: 'gate.weight'",
}
# What it builds without the tensors of this name, in silence.
LOST = {"qwen3 with biases of attention": "linear_proj.bias"}
# Families that only its own modules compute. Those with an indexer need megatron-core 0.17 (dsa_indexer.py:150).
INDEXED = ("deepseek_v32", "glm_moe_dsa")
COMPUTED = (*zoo.BRIDGED, *zoo.ENCLOSED, "qwen3_next", *INDEXED)
# Families with MTP layers under names of their own.
QWEN_MTP = ("qwen3_next", "qwen3_5")
# Dense layers of those.
DENSE = {"deepseek_v3 all sparse": 0, "deepseek_v3 all dense": 4}
# Rotary positions beyond the length of pre-training: type to its own values.
SCALED = {
    "linear": {},
    "yarn": {"original_max_position_embeddings": 16, "beta_fast": 32.0, "beta_slow": 1.0},
    "llama3": {"original_max_position_embeddings": 16, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
}
# As DeepSeek-V3 has it: both scale the attention, which ends as it would be with neither.
LATENT_YARN = {"mscale": 1.0, "mscale_all_dim": 1.0}
# Where the CPU stand-ins are installed in a script (`NATIVE_CPU.script`).
SCRIPT = "swift/cli/_megatron/logits.py"
FLOAT32 = {"torch_dtype": "float32", "bf16": "false", "fp16": "false", "use_cpu_initialization": "true"}


@pytest.fixture(scope="session")
def swift(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with ms-swift and mcore-bridge."""
    return swift_python()


def _model(name: str, made: Callable[[str], Path], swift: Path, folder: Path) -> Path:
    out = folder / "hf"
    if name.startswith(QWEN_MTP) and name.endswith("_mtp"):
        with_next_mtp(made, out, name.removesuffix("_mtp"))
    elif name.endswith("_mtp"):
        with_mtp(made, out, name.removesuffix("_mtp"))
    elif name in DENSE:
        deepseek_v3(out, DENSE[name])
    else:
        shutil.copytree(made(name), out)
    if "deepseek_v3" in name:
        tree = json.loads((out / "config.json").read_text())
        # Without it, which transformers does not write, mcore-bridge builds no routing bias and loses the weights'.
        (out / "config.json").write_text(json.dumps({**tree, "scoring_func": "sigmoid"}))
    for file in make_tokenizer(swift, folder).iterdir():
        shutil.copy(file, out)
    return out


def _look(path: Path) -> tuple[set[tuple[str, tuple[int, ...], str]], set[str]]:
    found = torch_dist.read(path)
    return {(chunk.key, chunk.global_shape, chunk.slot.dtype) for chunk in found.chunks}, {
        stored.key for stored in found.objects
    }


def _export(swift: Path, folder: Path, kind: str, out: Path, **more: str) -> Run:
    """Let Megatron-SWIFT write a model's torch_dist checkpoint."""
    values = {"model": folder, "model_type": kind, "template": "qwen3", "to_mcore": "true", "output_dir": out}
    args = [arg for key, value in {**values, **FLOAT32, **more}.items() for arg in (f"--{key}", str(value))]
    argv = [str(swift.parent / "megatron"), "export", *args]
    env = {"NPROC_PER_NODE": "1", "HF_HUB_OFFLINE": "1", **_path(out.parent)}
    return run_native(NATIVE_CPU, argv, cwd=out.parent, env=env)


def _kernels(folder: Path) -> Path:
    """Return a folder with what linear attention wants of flash-linear-attention, whose kernels are for GPUs.

    Its L2 norm (fla/modules/l2norm.py) is one line of torch. The others are never called: with deterministic_mode the
    real modules convolve with torch and use megatron-core's own torch_chunk_gated_delta_rule.
    """
    never = "def {}(*args, **kwargs):\n    raise NotImplementedError\n"
    modules = {
        "modules/l2norm": "def l2norm(x, eps=1e-6):\n    return x * (x.square().sum(-1, keepdim=True) + eps).rsqrt()\n",
        "modules/convolution": never.format("causal_conv1d"),
        "ops/gated_delta_rule": never.format("chunk_gated_delta_rule"),
    }
    for module, code in modules.items():
        file = folder / "kernels" / "fla" / f"{module}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(code)
    return folder / "kernels"


def _path(folder: Path, *first: Path) -> dict[str, str]:
    """Return PYTHONPATH with the stand-ins and the kernels, after other folders."""
    stand_ins = environment(NATIVE_CPU, {})["PYTHONPATH"]
    return {"PYTHONPATH": os.pathsep.join(map(str, (stand_ins, *first, _kernels(folder), vision_packages(folder))))}


@pytest.mark.sample(keep=1)
@pytest.mark.parametrize("name", UNBUILDABLE)
def test_what_is_declared_unbuildable_is_not_built(
    name: str, swift: Path, model: Callable[[str], Path], tmp_path: Path
) -> None:
    family, make, *_ = UNBUILDABLE[name]
    folder, theirs = make(model(family), tmp_path / "hf"), tmp_path / "theirs"
    for file in make_tokenizer(swift, tmp_path).iterdir():
        shutil.copy(file, folder)
    done = _export(swift, folder, MODELS.get(family, family), theirs)
    if name in LOST:
        assert done.code == 0, done.output[-3000:]
        assert not [key for key, *_ in _look(theirs)[0] if key.endswith(LOST[name])]
        return
    assert done.code == 1
    assert REFUSED[name] in done.output, done.output[-3000:]


@pytest.mark.sample(keep=2)
@pytest.mark.parametrize("name", MODELS)
def test_mcore_bridge_writes_the_same(name: str, swift: Path, model: Callable[[str], Path], tmp_path: Path) -> None:
    folder, theirs, ours = _model(name, model, swift, tmp_path), tmp_path / "theirs", tmp_path / "ours"
    _export(swift, folder, MODELS[name], theirs, **({"mtp_num_layers": "1"} if name.endswith("_mtp") else {})).check()
    assert launch("hf-to-mcore", "--model", folder, "--out", ours, "--backend", "megatron") == 0
    assert _look(ours) == _look(theirs)
    assert launch("verify", theirs, ours, "--model", folder) == 0


@pytest.mark.sample(keep=1)
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("name", COMPUTED)
def test_mcore_bridge_computes_the_same(
    name: str, ranks: int, swift: Path, model: Callable[[str], Path], tmp_path: Path
) -> None:
    """Its model, loaded from our checkpoint, has the logits of transformers; two ranks are tp 2 and ep 2."""
    assert _difference(name, ranks, swift, _model(name, model, swift, tmp_path), tmp_path) < 1e-4


@pytest.mark.sample(keep=1)
@pytest.mark.parametrize("kind", SCALED)
@pytest.mark.parametrize("name", ["llama", "qwen3", "qwen3_moe", "deepseek_v2", "deepseek_v3_mtp", "deepseek_v32"])
def test_mcore_bridge_computes_the_same_beyond_the_length_of_pre_training(
    name: str, kind: str, swift: Path, model: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = _model(name, model, swift, tmp_path)
    file = folder / "config.json"
    config = json.loads(file.read_text())
    base = config.pop("rope_parameters", {}).get("rope_theta", config.get("rope_theta", 10000.0))
    latent = LATENT_YARN if "kv_lora_rank" in config and kind == "yarn" else {}
    scaling = {"rope_type": kind, "type": kind, "factor": 4.0, **SCALED[kind], **latent}
    file.write_text(json.dumps({**config, "rope_theta": base, "rope_scaling": scaling}))
    assert _difference(name, 1, swift, folder, tmp_path) < 1e-4
    tokens = numpy.load(tmp_path / "tokens.npy")
    assert numpy.abs(zoo.logits(folder, tokens) - zoo.logits(model(name.removesuffix("_mtp")), tokens)).max() > 1e-3


def _difference(name: str, ranks: int, swift: Path, folder: Path, tmp_path: Path) -> float:
    """Return the largest difference of logits between mcore-bridge with our checkpoint and transformers."""
    ours, script = tmp_path / "ours", tmp_path / SCRIPT
    assert launch("hf-to-mcore", "--model", folder, "--out", ours, "--backend", "megatron") == 0
    tokens = numpy.random.default_rng(0).integers(0, zoo.BASE["vocab_size"], (2, 32))
    numpy.save(tmp_path / "tokens.npy", tokens)
    script.parent.mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("bridge_logits.py"), script)
    values = {"model": folder, "model_type": MODELS[name], "template": "qwen3", "mcore_model": ours, "to_hf": "true"}
    layout = {"tensor_model_parallel_size": ranks, "expert_model_parallel_size": ranks, "sequence_parallel": "true"}
    more = {"output_dir": tmp_path / "back", **FLOAT32, **layout, "attention_backend": "unfused"}
    args = [arg for key, value in {**values, **more}.items() for arg in (f"--{key}", str(value))]
    start = [str(swift), "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks), str(script)]
    argv = [*start, str(tmp_path / "tokens.npy"), str(tmp_path / "logits.npy"), *args]
    core = () if name not in INDEXED else (core_0_17(),)
    run_native(NATIVE_CPU, argv, cwd=tmp_path, env={"HF_HUB_OFFLINE": "1", **_path(tmp_path, *core)}).check()
    found = numpy.load(tmp_path / "logits.npy")[..., : zoo.BASE["vocab_size"]]
    return float(numpy.abs(found - zoo.logits(folder, tokens)).max())


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Name to the folder of a tiny model."""
    pytest.importorskip("transformers", reason="the zoo is written by transformers")
    root = tmp_path_factory.mktemp("zoo")
    return lambda name: root / name if (root / name).exists() else zoo.make(name, root / name)
