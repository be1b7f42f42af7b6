"""DeepSeek-V4 in megatron-core's development branch: our checkpoint is what it and mcore-bridge write, and computes."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
from safetensors.numpy import load_file, save_file

from backends.megatron.rehearse import NATIVE_CPU
from launcher.convert.containers import torch_dist
from launcher.rehearse.native import environment
from tests.convert import zoo
from tests.convert.helpers import launch, tensors
from tests.convert.twins import twin_of
from tests.rehearse.native.environments import swift_python
from tests.rehearse.native.runs import Run, run_native

pytestmark = pytest.mark.slow
VARIABLE = "MEGATRON_LM_DEV_PATH"
NAME = "deepseek_v4"
# Where the CPU stand-ins are installed in a script (`NATIVE_CPU.script`).
SCRIPT = "swift/cli/_megatron/dev_core.py"
# Above 128, the longer of the two compressions; no multiple of it.
TOKENS = 260
TOLERANCE = 1e-4
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def core() -> Path:
    if not os.environ.get(VARIABLE):
        pytest.skip(f"{VARIABLE} not set: it names a checkout of Megatron-LM's branch dev (d48bd6be was tried)")
    return Path(os.environ[VARIABLE])


def _run(core: Path, python: Path, folder: Path, *args: object, ranks: int = 1) -> Run:
    script = folder / SCRIPT
    script.parent.mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("dev_core.py"), script)
    start = [str(python), "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks), str(script)]
    # Saving starts a process, which imports the script's modules before any stand-in is installed.
    before = (environment(NATIVE_CPU, {})["PYTHONPATH"], str(ROOT), str(core), os.environ.get("PYTHONPATH", ""))
    env = {"HF_HUB_OFFLINE": "1", "PYTHONPATH": os.pathsep.join(filter(None, before))}
    return run_native(NATIVE_CPU, [*start, *map(str, (core, *args))], cwd=folder, env=env)


def _look(path: Path) -> tuple[set[tuple[str, tuple[int, ...], str]], set[str]]:
    found = torch_dist.read(path)
    return {(chunk.key, chunk.global_shape, chunk.slot.dtype) for chunk in found.chunks}, {
        stored.key for stored in found.objects
    }


# YaRN as DeepSeek-V4-Flash has it, and what mcore-bridge 1.6.5 leaves in the compressor and the indexer.
RELEASED = {"factor": 16.0, "original_max_position_embeddings": 65536}
LEFT = {"factor": 40.0, "original_max_position_embeddings": 4096}


# transformers draws embeddings of 0.05; after training, activations are far above megatron-core's epsilon.
TRAINED = 5


@pytest.fixture
def stretched(model: Callable[[str], Path], tmp_path: Path) -> Callable[..., Path]:
    """YaRN's values, and a factor of the embeddings, to a model's folder and the checkpoint beside it."""

    def make(scaling: dict[str, float], embeddings: float = 1) -> Path:
        folder = tmp_path / "hf"
        shutil.copytree(model(NAME), folder)
        arrays = load_file(folder / "model.safetensors")
        for name in ("embed.weight", "mtp.0.emb.tok_emb.weight"):
            arrays[name] = arrays[name] * numpy.float32(embeddings)
        save_file(arrays, folder / "model.safetensors")
        config = json.loads((folder / "config.json").read_text())
        yarn = {"type": "yarn", "beta_fast": 32, "beta_slow": 1, **scaling}
        (folder / "config.json").write_text(json.dumps({**config, "rope_scaling": yarn}))
        args = ("--model", folder, "--out", tmp_path / "ours", "--backend", "megatron")
        assert launch("hf-to-mcore", *args) == 0
        return folder

    return make


def _computed(core: Path, how: str, ep: int, folder: Path) -> tuple[Any, Any, Any]:
    """Logits of their model with our checkpoint, of transformers with its epsilon, and of transformers."""
    here = folder.parent
    tokens = numpy.random.default_rng(0).integers(0, zoo.BASE["vocab_size"], (2, TOKENS))
    numpy.save(here / "tokens.npy", tokens)
    python = Path(sys.executable) if how == "core" else swift_python()
    files = (here / "tokens.npy", here / "logits.npy")
    _run(core, python, here, how, here / "ours", here / "theirs", 1, ep, *files, ranks=ep).check()
    found = numpy.load(here / "logits.npy")
    return found, _with_epsilon_beside_the_root(folder, tokens), zoo.logits(folder, tokens)


@pytest.mark.parametrize(
    "how,ep,scaling", [("core", 1, RELEASED), ("core", 2, RELEASED), ("bridge", 1, LEFT), ("bridge", 2, LEFT)], ids=str
)
def test_their_models_load_it_and_compute_the_same(
    how: str, ep: int, scaling: dict[str, float], core: Path, stretched: Any, tmp_path: Path
) -> None:
    folder, ours, theirs = stretched(scaling, TRAINED), tmp_path / "ours", tmp_path / "theirs"
    found, _, plain = _computed(core, how, ep, folder)
    assert numpy.abs(found - plain).max() < TOLERANCE
    assert _look(ours) == _look(theirs)
    assert launch("verify", theirs, ours, "--model", folder) == 0
    assert launch("mcore-to-hf", "--checkpoint", theirs, "--model", folder, "--out", tmp_path / "back") == 0
    assert tensors(tmp_path / "back") == tensors(folder)


def test_small_activations_differ_by_megatron_cores_epsilon(core: Path, stretched: Any) -> None:
    """In float64 transformers' code is 2.7e-6 off its own float32, and megatron-core 1.45e-4: by its epsilon alone."""
    found, with_epsilon, plain = _computed(core, "core", 1, stretched(RELEASED))
    assert numpy.abs(found - with_epsilon).max() < 1e-5
    assert TOLERANCE < numpy.abs(found - plain).max() < 3e-4


def test_mcore_bridge_does_not_compute_with_the_models_yarn(core: Path, stretched: Any) -> None:
    """What SW-COMPRESSED-ROPE warns of; where this fails, upstream has mended it."""
    found, _, plain = _computed(core, "bridge", 1, stretched(RELEASED, TRAINED))
    assert numpy.abs(found - plain).max() > 100 * TOLERANCE


def test_upstream_refuses_tensor_parallelism(core: Path, stretched: Any, tmp_path: Path) -> None:
    """What SW-COMPRESSED-TP refuses."""
    stretched(RELEASED)
    run = _run(core, Path(sys.executable), tmp_path, "core", tmp_path / "ours", tmp_path / "theirs", 2, 1, ranks=2)
    assert run.code != 0
    assert "only supports TP size 1" in run.output


def _with_epsilon_beside_the_root(folder: Path, tokens: Any) -> Any:
    """Return transformers' logits with the norm of hyper-connections that megatron-core computes.

    x / (rms(x) + eps) (native_proj_rms, transformer/hyper_connection.py:149 @d48bd6be), not x / sqrt(mean(x²) + eps)
    (DeepseekV4UnweightedRMSNorm, transformers 5.24).
    """
    import torch

    model = zoo.loaded(twin_of(folder))
    norms = [module for name, module in model.named_modules() if name.endswith("_hc.input_norm")]
    assert norms
    for norm in norms:
        norm.forward = lambda x, eps=norm.eps: x / (x.square().mean(-1, keepdim=True).sqrt() + eps)
    with torch.no_grad():
        return model(torch.from_numpy(tokens)).logits.numpy()


def test_mcore_bridge_writes_the_same(core: Path, model: Callable[[str], Path], tmp_path: Path) -> None:
    folder, ours, theirs = model(NAME), tmp_path / "ours", tmp_path / "theirs"
    _run(core, swift_python(), tmp_path, "bridge", folder, theirs, 1, 1).check()
    assert launch("hf-to-mcore", "--model", folder, "--out", ours, "--backend", "megatron") == 0
    assert _look(ours) == _look(theirs)
    assert launch("verify", theirs, ours, "--model", folder) == 0


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Name to the folder of a tiny model."""
    pytest.importorskip("transformers", reason="the zoo is written by transformers")
    root = tmp_path_factory.mktemp("zoo")
    return lambda name: root / name if (root / name).exists() else zoo.make(name, root / name)
