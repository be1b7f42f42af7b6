"""A converted adapter computes in megatron-core what it computes in transformers with PEFT."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
from core_world import Zygote

from tests.convert import zoo
from tests.convert.adapters import PARAMETERS, adapter_arrays, fused_arrays, linear_modules, write_adapter
from tests.convert.core_logits import megatron_argv
from tests.convert.helpers import launch
from tests.convert.peft_logits import logits as logits_of

pytestmark = pytest.mark.slow
TOLERANCE = 1e-4
SEQUENCE = ["parallel.tp=2", "parallel.sequence_parallel=true"]
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
LATENT = ("q_a_proj", "q_b_proj", "kv_b_proj", "o_proj", "kv_a_proj_with_mqa")
CASES: dict[str, tuple[str, list[str], bool]] = {
    "qwen2 tp2": ("qwen2", ["parallel.tp=2"], True),
    "qwen2 tp2, rewritten": ("qwen2", ["parallel.tp=2"], False),
    "qwen3 pp2": ("qwen3", ["parallel.pp=2"], True),
    "qwen3_moe ep2, fused experts": ("qwen3_moe", ["parallel.ep=2"], True),
    "deepseek_v3 tp2": ("deepseek_v3", SEQUENCE, True),
}


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    pytest.importorskip("megatron.core", reason="the extra `rehearsal` is not installed")
    with Zygote(tmp_path_factory.mktemp("ranks")) as process:
        yield process


def _adapter(name: str, folder: Path, out: Path, shared: bool) -> Path:
    modules = linear_modules(folder)
    if name == "qwen3_moe":
        attention = {module: shape for module, shape in modules.items() if module.endswith(ATTENTION)}
        arrays = {**adapter_arrays(attention), **fused_arrays(folder)}
        return write_adapter(out, arrays, target_modules=list(ATTENTION), target_parameters=PARAMETERS)
    if name == "deepseek_v3":
        # transformers 5 fuses experts; PEFT knows their old names for some families only: attention.
        modules = {module: shape for module, shape in modules.items() if module.endswith(LATENT)}
    return write_adapter(out, adapter_arrays(modules, shared=shared))


@pytest.mark.sample(keep=2)
@pytest.mark.parametrize(("name", "layout", "shared"), CASES.values(), ids=CASES.keys())
def test_the_same_logits(
    name: str, layout: list[str], shared: bool, model: Callable[[str], Path], zygote: Zygote, tmp_path: Path
) -> None:
    folder = model(name)
    adapter = _adapter(name, folder, tmp_path / "adapter", shared)
    pytest.importorskip("peft")
    tokens = tmp_path / "tokens.npy"
    numpy.save(tokens, numpy.random.default_rng(0).integers(0, zoo.BASE["vocab_size"], (2, 32)))
    expected = logits_of(folder, adapter, numpy.load(tokens))
    base, core, found = tmp_path / "base", tmp_path / "core", tmp_path / "found.npy"
    assert launch("hf-to-mcore", "--model", folder, "--out", base, "--layers", "local", *layout) == 0
    rewrite = [] if shared else ["--rewrite"]
    reported = ["--model", folder, "--adapter", adapter, "--out", core, "--backend", "megatron"]
    assert launch("hf-to-mcore", *reported, *rewrite, *layout) == 0
    argv = megatron_argv(str(folder), *layout, world=2)
    given = [str(base), str(core), "2", str(tokens), str(found), *argv]
    codes, log = zygote.call("tests.convert.adapter_logits:main", given, ranks=2)
    assert codes == [0, 0], log
    logits: Any = numpy.load(found)
    assert numpy.abs(logits - expected).max() < TOLERANCE
    assert numpy.abs(logits - zoo.logits(folder, numpy.load(tokens))).max() > 100 * TOLERANCE
