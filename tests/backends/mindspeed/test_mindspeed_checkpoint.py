"""MindSpeed-LLM's checkpoints: there and back, and tensor by tensor what its own converter writes and reads."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.convert import zoo
from tests.convert.helpers import launch, tensors, with_mtp
from tests.rehearse.native.environments import mindspeed_python
from tests.waiting import STUCK_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One choice of a layout: the words for upstream's converter, ours, and whether the way back needs them again."""

    theirs: tuple[str, ...] = ()
    ours: tuple[str, ...] = ()
    again: bool = False


OPTIONS: Mapping[str, Option] = {
    "tp2": Option(theirs=("--target-tensor-parallel-size", "2"), ours=("parallel.tp=2",)),
    "pp2": Option(theirs=("--target-pipeline-parallel-size", "2"), ours=("parallel.pp=2",)),
    "pp4": Option(theirs=("--target-pipeline-parallel-size", "4"), ours=("parallel.pp=4",)),
    "ep2": Option(theirs=("--target-expert-parallel-size", "2"), ours=("parallel.ep=2",)),
    "vpp": Option(theirs=("--num-layers-per-virtual-pipeline-stage", "1"), ours=("parallel.vpp=2",)),
    "vpp of 8": Option(theirs=("--num-layers-per-virtual-pipeline-stage", "2"), ours=("parallel.vpp=2",)),
    "noop": Option(theirs=("--noop-layers", "4,5"), ours=("parallel.noop_layers=[4,5]",), again=True),
    "noop of 8": Option(theirs=("--noop-layers", "1,4,5,7"), ours=("parallel.noop_layers=[1,4,5,7]",), again=True),
    "list": Option(theirs=("--num-layer-list", "1,3"), ours=("parallel.first_stage_layers=1",)),
    "v": Option(
        theirs=("--schedules-method", "dualpipev"),
        ours=("parallel.schedule=dualpipev", "parallel.vpp=2"),
        again=True,
    ),
    "te": Option(
        theirs=("--transformer-impl", "transformer_engine"),
        ours=("kernels.transformer_impl=transformer_engine",),
        again=True,
    ),
    "grouped": Option(theirs=("--moe-grouped-gemm",), ours=("moe.grouped_gemm=true",), again=True),
    "extend": Option(theirs=("--moe-tp-extend-ep",), ours=("moe.tp_extend_ep=true",), again=True),
    "etp1": Option(theirs=("--expert-tensor-parallel-size", "1"), ours=("parallel.etp=1",), again=True),
    "etp2": Option(theirs=("--expert-tensor-parallel-size", "2"), ours=("parallel.etp=2",), again=True),
    "split": Option(theirs=("--mla-mm-split",), ours=("+backend.args.mla-mm-split=true",), again=True),
    "mtp": Option(theirs=("--mtp-num-layers", "1"), again=True),
    "master": Option(ours=("backend.version=master",)),
}
FAMILIES: Mapping[str, str] = {
    "llama": "llama2",
    "llama_tied": "llama2",
    "qwen2": "qwen25",
    "qwen3": "qwen3",
    "gemma2": "gemma2",
    "qwen2_moe": "qwen2-moe",
    "qwen3_moe": "qwen3-moe",
    "minimax_m2": "minimax_m2",
    "deepseek_v2": "deepseek2",
    "deepseek_v2_lite": "deepseek2-lite",
    "deepseek_v3": "deepseek3",
    "deepseek_v3_mtp": "deepseek3",
    "deepseek_v4": "deepseek4_base",
}
CASES = (
    "llama:",
    "llama: pp2, vpp",
    "llama_tied: tp2, pp2",
    "llama_tied: pp2, v",
    "qwen2: tp2, pp4",
    "qwen2: pp2, list",
    "qwen3: pp2, noop",
    "qwen3: pp2, noop of 8, vpp of 8",
    "qwen3: pp2, noop of 8, v",
    "gemma2: tp2, pp2",
    "qwen3_moe: tp2, ep2",
    "qwen3_moe: tp2, pp2, ep2, grouped",
    "qwen3_moe: tp2, pp2, ep2, vpp, grouped, extend",
    "qwen3_moe: tp2, ep2, grouped, etp1",
    "qwen3_moe: tp2, etp1",
    "qwen3_moe: tp2, ep2, te",
    "qwen2_moe: tp2, pp2, ep2",
    "qwen2_moe: tp2, ep2, grouped",
    "minimax_m2: master, pp2, ep2",
    "minimax_m2: master, pp2, noop, ep2, grouped",
    "deepseek_v2: tp2, pp2, split",
    "deepseek_v2_lite: tp2, ep2, grouped",
    "deepseek_v3: tp2, pp2, ep2, split, grouped, extend",
    "deepseek_v3: pp2, vpp, tp2, ep2, grouped",
    "deepseek_v3_mtp: mtp, tp2, pp2, ep2, split, grouped",
    "deepseek_v3_mtp: mtp, pp2, noop, ep2",
    "deepseek_v3_mtp: mtp, pp2, v, ep2, grouped",
    "deepseek_v4: master, mtp, tp2, pp2, ep2, etp1, grouped",
    "deepseek_v4: master, mtp, pp2, noop, ep2, etp1, grouped",
    "deepseek_v4: master, mtp, pp2, vpp, ep2, etp1, grouped",
    "deepseek_v4: master, mtp, tp2, ep2, etp2",
)


def _parsed(case: str) -> tuple[str, list[Option]]:
    name, _, args = case.partition(":")
    return name, [OPTIONS[arg.strip()] for arg in args.split(",") if arg.strip()]


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Name to the folder of a tiny model, as a converter that knows transformers 4 expects it."""
    pytest.importorskip("transformers", reason="the zoo is written by transformers")
    root = tmp_path_factory.mktemp("zoo")

    @cache
    def made(name: str) -> Path:
        if name.endswith("_mtp"):
            return with_mtp(made, root / name)
        # Its converter takes DeepSeek-V4 in bf16 only.
        folder = zoo.make(name, root / name, dtype="bfloat16" if name == "deepseek_v4" else "float32")
        tree = json.loads((folder / "config.json").read_text())
        if "num_local_experts" in tree:
            tree.setdefault("num_experts", tree["num_local_experts"])
        (folder / "config.json").write_text(json.dumps(tree))
        return folder

    return made


def _converted(folder: Path, out: Path, *args: str) -> Path:
    assert launch("hf-to-mcore", "--model", folder, "--out", out, "--backend", "mindspeed", *args) == 0
    return out


@pytest.mark.sample(keep=2)
@pytest.mark.parametrize(
    "case",
    [
        "qwen3: pp2, noop of 8, v",
        "qwen3_moe: tp2, ep2, grouped, extend",
        "qwen2_moe: tp2, ep2",
        "deepseek_v3_mtp: mtp, tp2, pp2, ep2, split, grouped",
        "deepseek_v2_lite: pp2, list, tp2, split",
        "gemma2: tp2, pp2, noop",
        "minimax_m2: master, pp2, noop, ep2, grouped",
        "deepseek_v4: master, mtp, tp2, pp2, ep2, etp1, grouped",
        "deepseek_v4: pp2, vpp, tp2, ep2, grouped",
    ],
)
def test_every_byte_comes_back(case: str, model: Callable[[str], Path], tmp_path: Path) -> None:
    name, options = _parsed(case)
    out = _converted(model(name), tmp_path / "out", *(arg for option in options for arg in option.ours))
    assert launch("mcore-to-hf", "--checkpoint", out, "--out", tmp_path / "back") == 0
    assert tensors(tmp_path / "back") == tensors(model(name))


def test_older_names_come_back_too(model: Callable[[str], Path], tmp_path: Path) -> None:
    from launcher.convert.formats.legacy_read import read_files

    out = _converted(model("deepseek_v3_mtp"), tmp_path / "out", "backend.version=2.1.0", "parallel.pp=2")
    names = read_files(out).names
    assert "decoder.layers.0.self_attention.linear_qb.weight" in names
    assert "decoder.layers.0.self_attention.k_layernorm.weight" in names
    assert launch("mcore-to-hf", "--checkpoint", out, "--out", tmp_path / "back") == 0
    assert tensors(tmp_path / "back") == tensors(model("deepseek_v3_mtp"))


def test_from_its_layout_to_another_and_to_torch_dist(model: Callable[[str], Path], tmp_path: Path) -> None:
    args = ("parallel.tp=2", "parallel.ep=2", "moe.grouped_gemm=true", "+backend.args.mla-mm-split=true")
    first = _converted(model("deepseek_v3"), tmp_path / "first", *args)
    assert launch("reshard", "--checkpoint", first, "--out", tmp_path / "dist", "--format", "torch_dist") == 0
    again = ("--out", tmp_path / "second", "--backend", "mindspeed", "parallel.pp=4")
    assert launch("reshard", "--checkpoint", tmp_path / "dist", *again) == 0
    assert launch("verify", first, tmp_path / "second") == 0


@pytest.mark.parametrize(
    "name,args,reported",
    [
        ("deepseek_v4", ["moe.tp_extend_ep=true", "moe.grouped_gemm=true", "parallel.tp=2"], "moe.tp_extend_ep=false"),
        (
            "deepseek_v4",
            ["parallel.schedule=dualpipev", "parallel.vpp=2", "parallel.pp=2"],
            "another parallel.schedule",
        ),
        ("deepseek_v3", ["kernels.transformer_impl=transformer_engine"], "--layers local"),
        ("qwen3_moe", ["moe.tp_extend_ep=true", "parallel.tp=2"], "moe.grouped_gemm=true"),
    ],
)
def test_what_it_cannot_load_is_refused(
    name: str,
    args: list[str],
    reported: str,
    model: Callable[[str], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    assert launch("hf-to-mcore", "--model", model(name), "--out", out, "--backend", "mindspeed", *args) == 1
    assert reported in capsys.readouterr().err


# --- held against its own converter ---


class Converter:
    """MindSpeed-LLM's convert_ckpt_v2.py (2.1.0: the one for DeepSeek-V3) in a process of its own."""

    def __init__(self, python: Path, log: Path) -> None:
        child = Path(__file__).with_name("converter_child.py")
        self.is_new = (Path(os.environ["MINDSPEED_LLM_PATH"]) / "convert_ckpt_v2.py").is_file()
        self.log = log.open("w")
        self.process = subprocess.Popen(
            [str(python), str(child)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "USE_TF": "FALSE"},
        )

    def __call__(self, *args: object) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([str(arg) for arg in args]) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert answer == "ok", answer

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=STUCK_SECONDS)
        self.log.close()


@pytest.fixture(scope="module")
def converter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Converter]:
    if not os.environ.get("MINDSPEED_LLM_PATH"):
        pytest.skip("MINDSPEED_LLM_PATH not set: it names a checkout of MindSpeed-LLM")
    running = Converter(mindspeed_python(), tmp_path_factory.mktemp("log") / "log")
    yield running
    running.close()


def _stored(folder: Path) -> dict[tuple[str, str, str], Any]:
    torch = pytest.importorskip("torch")
    found: dict[tuple[str, str, str], Any] = {}
    for file in sorted(folder.glob("iter_0000001/mp_rank_*/model_optim_rng.pt")):
        top = torch.load(file, map_location="cpu", weights_only=False)
        for key in (key for key in top if key.startswith("model")):
            for name, tensor in top[key].items():
                data = tensor.contiguous().view(torch.uint8).numpy().tobytes()
                found[file.parent.name, key, name] = (tensor.dtype, tuple(tensor.shape), data)
        found[file.parent.name, "keys", ""] = sorted(top)
    return found


OLD_CASES = (
    "deepseek_v3:",
    "deepseek_v3: tp2, ep2, grouped",
    "deepseek_v3_mtp: mtp, pp2, tp2, split",
    "deepseek_v3_mtp: mtp, pp2, ep2, vpp, grouped, extend, tp2",
    "deepseek_v3_mtp: mtp, pp2, v, grouped",
    "deepseek_v3_mtp: mtp, pp2, noop",
)


@pytest.mark.slow
@pytest.mark.parametrize("case", OLD_CASES)
def test_the_converter_of_2_1_0_writes_the_same(
    case: str, converter: Converter, model: Callable[[str], Path], tmp_path: Path
) -> None:
    if converter.is_new:
        pytest.skip("MINDSPEED_LLM_PATH is no checkout of 2.1.0")
    name, options = _parsed(case)
    folder, theirs, back = shutil.copytree(model(name), tmp_path / "hf"), tmp_path / "theirs", tmp_path / "back"
    index = {"weight_map": dict.fromkeys(tensors(folder), "model.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    args = [arg for option in options for arg in option.theirs]
    layers = ("--num-layers", 6 if "noop" in case else 4, "--first-k-dense-replace", 1)
    converter("--load-dir", folder, "--save-dir", theirs, *layers, *args)
    mine = [arg for option in options for arg in option.ours]
    ours = _converted(model(name), tmp_path / "ours", "backend.version=2.1.0", *mine)
    stored = {key: value for key, value in _stored(ours).items() if key[1] != "keys"}
    assert stored == {key: value for key, value in _stored(theirs).items() if key[1] != "keys"}

    # It stores no arguments, so the one thing that shapes do not tell has to be said.
    source = ("--source", "moe.tp_extend_ep=true") if "extend" in case else ()
    assert launch("mcore-to-hf", "--checkpoint", theirs, "--model", folder, "--out", back, *source) == 0
    assert tensors(back) == tensors(folder)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_its_converter_writes_and_reads_the_same(
    case: str, converter: Converter, model: Callable[[str], Path], tmp_path: Path
) -> None:
    if not converter.is_new:
        pytest.skip("MINDSPEED_LLM_PATH has no convert_ckpt_v2.py")
    name, options = _parsed(case)
    folder, kind = model(name), ("--model-type-hf", FAMILIES[name])
    models = Path(os.environ["MINDSPEED_LLM_PATH"]) / "configs" / "checkpoint" / "model_cfg.json"
    if f'"{FAMILIES[name]}"' not in models.read_text(encoding="utf-8"):
        pytest.skip(f"the converter of MINDSPEED_LLM_PATH does not know {FAMILIES[name]}")
    args = [arg for option in options for arg in option.theirs]
    again = [arg for option in options if option.again for arg in option.theirs]
    ours = _converted(folder, tmp_path / "ours", *(arg for option in options for arg in option.ours))
    converter(*kind, "--load-dir", folder, "--save-dir", tmp_path / "theirs", *args)
    theirs = _stored(tmp_path / "theirs")
    if name == "deepseek_v4":
        # It also writes folders that no rank has, where experts are not split and the others are.
        theirs = {key: theirs[key] for key in theirs if (ours / "iter_0000001" / key[0]).is_dir()}
    assert _stored(ours) == theirs
    tracker = "latest_checkpointed_iteration.txt"
    assert (ours / tracker).read_text().strip() == (tmp_path / "theirs" / tracker).read_text().strip()

    back = ("--checkpoint", tmp_path / "theirs", "--model", folder, "--out", tmp_path / "from_theirs")
    assert launch("mcore-to-hf", *back) == 0
    assert tensors(tmp_path / "from_theirs") == tensors(folder)

    direction = ("--load-model-type", "mg", "--save-model-type", "hf")
    where = ("--load-dir", ours, "--save-dir", tmp_path / "from_ours", "--hf-cfg-dir", folder)
    converter(*direction, *kind, *where, *again)
    # It leaves out the copy of the head inside an MTP layer.
    expected = {key: value for key, value in tensors(folder).items() if "shared_head.head" not in key}
    assert tensors(tmp_path / "from_ours") == expected
    shutil.rmtree(tmp_path)
