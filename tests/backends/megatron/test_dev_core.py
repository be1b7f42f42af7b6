"""DeepSeek-V4 in megatron-core's development branch: our checkpoint is what it and mcore-bridge write, and computes."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

from backends.megatron.rehearse import NATIVE_CPU
from launcher.convert.containers import torch_dist
from launcher.rehearse.native import environment
from tests.convert import zoo
from tests.convert.helpers import launch, tensors
from tests.convert.twins import twin_of
from tests.rehearse.native.environments import swift_python
from tests.rehearse.native.runs import run_native

pytestmark = pytest.mark.slow
VARIABLE = "MEGATRON_LM_DEV_PATH"
NAME = "deepseek_v4"
# Where the CPU stand-ins are installed in a script (`NATIVE_CPU.script`).
SCRIPT = "swift/cli/_megatron/dev_core.py"
# Above 128, the longer of the two compressions; no multiple of it.
TOKENS = 260
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def core() -> Path:
    if not os.environ.get(VARIABLE):
        pytest.skip(f"{VARIABLE} not set: it names a checkout of Megatron-LM's branch dev (d48bd6be was tried)")
    return Path(os.environ[VARIABLE])


def _run(core: Path, python: Path, folder: Path, *args: object) -> None:
    script = folder / SCRIPT
    script.parent.mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("dev_core.py"), script)
    start = [str(python), "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "1", str(script)]
    # Saving starts a process, which imports the script's modules before any stand-in is installed.
    before = (environment(NATIVE_CPU, {})["PYTHONPATH"], str(ROOT), str(core), os.environ.get("PYTHONPATH", ""))
    env = {"HF_HUB_OFFLINE": "1", "PYTHONPATH": os.pathsep.join(filter(None, before))}
    run_native(NATIVE_CPU, [*start, *map(str, (core, *args))], cwd=folder, env=env).check()


def _look(path: Path) -> tuple[set[tuple[str, tuple[int, ...], str]], set[str]]:
    found = torch_dist.read(path)
    return {(chunk.key, chunk.global_shape, chunk.slot.dtype) for chunk in found.chunks}, {
        stored.key for stored in found.objects
    }


def test_its_modules_load_and_compute_the_same(core: Path, model: Callable[[str], Path], tmp_path: Path) -> None:
    folder, ours, theirs, logits = model(NAME), tmp_path / "ours", tmp_path / "theirs", tmp_path / "logits.npy"
    assert launch("hf-to-mcore", "--model", folder, "--out", ours, "--backend", "megatron") == 0
    tokens = numpy.random.default_rng(0).integers(0, zoo.BASE["vocab_size"], (2, TOKENS))
    numpy.save(tmp_path / "tokens.npy", tokens)
    _run(core, Path(sys.executable), tmp_path, "core", ours, theirs, tmp_path / "tokens.npy", logits)
    assert _look(ours) == _look(theirs)
    assert launch("verify", theirs, ours, "--model", folder) == 0
    assert launch("mcore-to-hf", "--checkpoint", theirs, "--model", folder, "--out", tmp_path / "back") == 0
    assert tensors(tmp_path / "back") == tensors(folder)
    found = numpy.load(logits)
    assert numpy.abs(found - _with_epsilon_beside_the_root(folder, tokens)).max() < 1e-5
    # In float64 transformers' code is 2.7e-6 off its own float32, and megatron-core 1.45e-4: by this epsilon alone.
    assert numpy.abs(found - zoo.logits(folder, tokens)).max() < 3e-4


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
    _run(core, swift_python(), tmp_path, "bridge", folder, theirs)
    assert launch("hf-to-mcore", "--model", folder, "--out", ours, "--backend", "megatron") == 0
    assert _look(ours) == _look(theirs)
    assert launch("verify", theirs, ours, "--model", folder) == 0


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Name to the folder of a tiny model."""
    pytest.importorskip("transformers", reason="the zoo is written by transformers")
    root = tmp_path_factory.mktemp("zoo")
    return lambda name: root / name if (root / name).exists() else zoo.make(name, root / name)
