"""Checkpoints of MindFormers' older classes (use_legacy: True): equal to what its converters write, there and back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from backends.mindformers.checkpoint.strategy import Cut, Strategy, read_strategy, strategy_bytes
from tests.backends.mindformers import weights
from tests.convert.helpers import launch, tensors

pytest.importorskip("numpy")
UPSTREAM = json.loads((Path(__file__).parent / "upstream_weights.json").read_text(encoding="utf-8"))
CASES = [case for case in UPSTREAM if " older" in case]
OLDER = ("--set", "use_legacy=true", "--set", "version=1.6")
GROUPED, CONCATENATED = ("--set", "use_gmm=true"), ("--set", "qkv_concat=true")
RANKS = ("--set", "per_rank=true", "backend=mindformers", "parallel.tp=2", "parallel.pp=2")
FAMILIES = ("llama", "llama_tied", "qwen2", "qwen2_moe", "mixtral", "deepseek_v2", "deepseek_v3")
LAYOUTS: dict[str, tuple[str, ...]] = {
    "whole": (),
    "grouped": GROUPED,
    "concatenated": (*CONCATENATED, *GROUPED),
    "tp2 pp2": RANKS,
    "tp2 pp2 vpp2 ep2": (*RANKS, "parallel.ep=2", "parallel.vpp=2"),
    "tp2 pp2 ep4 grouped, uneven": (*RANKS, *GROUPED, "parallel.ep=4", "parallel.first_stage_layers=1"),
}


def _to(name: str, folder: Path, *args: str) -> tuple[Path, Path]:
    model, out = weights.write(name, folder / "hf"), folder / "mf"
    assert launch("hf-to-mcore", "--model", model, "--out", out, "--backend", "mindformers", *args) == 0
    return model, out


@pytest.mark.sample(keep=8)
@pytest.mark.parametrize("args", LAYOUTS.values(), ids=list(LAYOUTS))
@pytest.mark.parametrize("name", FAMILIES)
def test_there_and_back_is_the_same_model(name: str, args: tuple[str, ...], tmp_path: Path) -> None:
    if "qkv_concat=true" in args and name.startswith("deepseek"):
        pytest.skip("latent attention has no such matrix; refused below")
    model, out = _to(name, tmp_path, *OLDER, *args)
    assert launch("mcore-to-hf", "--checkpoint", out, "--out", tmp_path / "back") == 0
    assert tensors(tmp_path / "back") == tensors(model)


@pytest.mark.parametrize("case", CASES)
def test_same_names_shapes_and_bytes_as_its_converters_write(case: str, tmp_path: Path) -> None:
    """convert_weight.py of models/llama, research/qwen2_5, qwen2, mixtral and deepseek3 @1.6.0, run on these models."""
    name, _, options = case.partition(" 1.6.0 older")
    args = [arg for option in options.split() for arg in ("--set", f"{option}=true")]
    _, out = _to(name, tmp_path, *OLDER, *args)
    theirs = dict(UPSTREAM[case])
    if "tied" in name:
        # They write the embedding a second time; the network has it once.
        assert theirs.pop("lm_head.weight") == theirs["model.tok_embeddings.embedding_weight"]
    assert weights.digests(sorted(out.rglob("*.safetensors"))) == theirs


@pytest.mark.parametrize("args", [(), GROUPED], ids=["each", "grouped"])
def test_names_and_shapes_are_those_of_the_network(args: tuple[str, ...], tmp_path: Path) -> None:
    """DeepseekV2ForCausalLM of research/deepseek3 @1.6.0, built; no converter of theirs takes DeepSeek-V2."""
    _, out = _to("deepseek_v2", tmp_path, *OLDER, *args)
    written = weights.digests(sorted(out.rglob("*.safetensors")))
    network = UPSTREAM["network deepseek_v2 1.6.0" + (" use_gmm" if args else "")]
    assert {name: shape for name, (shape, _) in written.items()} == {
        name: shape for name, (shape, _) in network.items()
    }


def test_a_tied_head_that_a_converter_wrote_is_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from safetensors.numpy import load_file, save_file

    model, out = _to("llama_tied", tmp_path, *OLDER)
    file = next(out.glob("*.safetensors"))
    held = load_file(file)
    held["lm_head.weight"] = held["model.tok_embeddings.embedding_weight"].copy()
    save_file(held, file)
    assert launch("mcore-to-hf", "--checkpoint", out, "--out", tmp_path / "back") == 0
    assert tensors(tmp_path / "back") == tensors(model)
    held["lm_head.weight"][3, 4] += 1
    save_file(held, file)
    assert launch("mcore-to-hf", "--checkpoint", out, "--out", tmp_path / "other") == 1
    assert "lm_head.weight" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "args", "reported"),
    [
        ("qwen3", ("--set", "version=1.6"), "1.6.0 cannot train qwen3: its mcore graph (use_legacy: False) trains"),
        ("qwen3", ("--set", "version=1.6"), "works: --set version=2.1 --set use_legacy=false (Qwen3ForCausalLM)"),
        ("llama", ("--set", "use_legacy=false"), "works: --set version=2.1 --set use_legacy=true (LlamaForCausalLM)"),
        ("deepseek_v2", (), "works: --set version=1.6 --set use_legacy=true (DeepseekV2ForCausalLM"),
        ("deepseek_v3", (*OLDER, *CONCATENATED), "qkv_concat: latent attention"),
        ("mixtral", (*OLDER, *CONCATENATED), "works: moe.grouped_gemm=true"),
        ("deepseek_v3_full_query", OLDER, "without q_lora_rank"),
        ("llama", ("model.legacy=false", "backend=mindformers"), "2.1.0 cannot train llama: its mcore graph"),
    ],
)
def test_refusals_say_what_would_work(
    name: str, args: tuple[str, ...], reported: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = weights.write(name, tmp_path / "hf")
    assert launch("hf-to-mcore", "--model", model, "--out", tmp_path / "o", "--backend", "mindformers", *args) == 1
    assert reported in capsys.readouterr().err


def test_the_job_chooses_the_classes(tmp_path: Path) -> None:
    args = ("backend=mindformers", "backend.version=1.6.0", "model.legacy=true", "moe.grouped_gemm=true")
    _, out = _to("deepseek_v3", tmp_path, *args)
    assert weights.digests(sorted(out.rglob("*.safetensors"))) == UPSTREAM["deepseek_v3 1.6.0 older use_gmm"]


@pytest.mark.parametrize("name", ["qwen2_moe", "deepseek_v3"])
def test_a_strategy_elsewhere_is_named_by_the_job(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, out = _to(name, tmp_path, *OLDER, *RANKS)
    shutil.move(out / "strategy", tmp_path / "elsewhere")
    back = ("mcore-to-hf", "--checkpoint", out, "--out", tmp_path / "back")
    assert launch(*back) == 1
    assert "without strategy files" in capsys.readouterr().err
    named = f"+backend.args={{src_strategy_path_or_dir:{tmp_path / 'elsewhere'}}}"
    assert launch(*back, "--source", "backend=mindformers", "--source", named) == 0
    assert tensors(tmp_path / "back") == tensors(model)


def test_the_last_step_is_taken_and_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, out = _to("llama", tmp_path, *OLDER, *RANKS)
    for folder in (out / "checkpoint").iterdir():
        file = next(folder.iterdir())
        file.rename(file.with_name(file.name.replace("-1_1.", "-2_10.")))
        file.with_name(file.name.replace("-1_1.", "-2_9.")).write_bytes(b"older")
    assert launch("mcore-to-hf", "--checkpoint", out, "--out", tmp_path / "back") == 0
    assert "taken: the last one (epoch 2, step 10)" in capsys.readouterr().out
    assert tensors(tmp_path / "back") == tensors(model)


def _rank_gone(out: Path) -> None:
    shutil.rmtree(out / "checkpoint" / "rank_3")


def _stage_gone(out: Path) -> None:
    for number in (2, 3):
        shutil.rmtree(out / "checkpoint" / f"rank_{number}")


def _strategy_cut(out: Path) -> None:
    file = out / "strategy" / "ckpt_strategy_rank_0.ckpt"
    file.write_bytes(file.read_bytes()[:-7])


def _other_step(out: Path) -> None:
    file = next((out / "checkpoint" / "rank_0").iterdir())
    shutil.copy(file, file.with_name(file.name.replace("-1_1.", "-1_2.")))


def _own_format(out: Path) -> None:
    for file in (out / "checkpoint").rglob("*.safetensors"):
        file.rename(file.with_suffix(".ckpt"))


@pytest.mark.parametrize(
    ("damage", "reported"),
    [
        (_rank_gone, "rank_3 is missing: the strategy is for 4 ranks"),
        (_stage_gone, "rank_2 is missing"),
        (_strategy_cut, "not a strategy file of MindSpore"),
        (_other_step, "no file of epoch 1 step 2"),
        (_own_format, "ckpt_to_safetensors"),
    ],
)
def test_damaged_rank_folders_are_refused(
    damage: object, reported: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out = _to("llama", tmp_path, *OLDER, *RANKS)
    assert callable(damage)
    damage(out)
    assert launch("mcore-to-hf", "--checkpoint", out, "--out", tmp_path / "back") == 1
    shown = capsys.readouterr().err
    assert reported in shown
    assert "Traceback" not in shown
    assert not (tmp_path / "back").exists()


CUTS = {
    "a.weight": Cut(devices=(2, 2), axes=((0,), ())),
    "b.weight": Cut(devices=(2, 2), axes=((), (1,))),
    "c.weight": Cut(devices=(4,), axes=((), ()), step=1, optimizer=4),
}


def test_strategies_are_read_as_they_were_written(tmp_path: Path) -> None:
    files = []
    for stage in range(2):
        files.append(tmp_path / f"ckpt_strategy_rank_{4 * stage}.ckpt")
        files[-1].write_bytes(strategy_bytes(stage, {name: (cut, (1, 1)) for name, cut in CUTS.items()}))
    cuts = {(stage, name): cut for stage in range(2) for name, cut in CUTS.items()}
    assert read_strategy(files) == Strategy(cuts=cuts)


def test_a_merged_strategy_in_json(tmp_path: Path) -> None:
    layout = {
        "dev_matrix": [2, 2],
        "tensor_map": [[1, 0], [-1]],
        "opt_weight_shard_step": 0,
        "opt_weight_shard_size": 0,
    }
    file = tmp_path / "merged.json"
    file.write_text(
        json.dumps({"parallel_strategy_item": {"n": {"stage": 0}}, "parallel_layout_item": {"1-w": layout}})
    )
    (cut,) = read_strategy([file]).cuts.values()
    assert read_strategy([file]).cuts == {(1, "w"): Cut(devices=(2, 2), axes=((1, 0), ()))}
    assert [cut.place(rank) for rank in range(4)] == [(0, 0), (1, 0), (2, 0), (3, 0)]
    assert cut.pieces == (4, 1)


@pytest.mark.parametrize(
    ("cut", "rows"),
    [
        (Cut(devices=(4, 2), axes=((0,), ()), step=2, optimizer=4), [0, 4, 1, 5, 2, 6, 3, 7]),
        (Cut(devices=(4, 2), axes=((0,), ()), step=2, optimizer=2), [0, 2, 1, 3, 0, 2, 1, 3]),
        (Cut(devices=(2, 2, 2), axes=((1,), ()), step=1, optimizer=4), [0, 1, 4, 5, 2, 3, 6, 7]),
        (Cut(devices=(2, 4), axes=((), ()), step=1, optimizer=-1), [0, 1, 2, 3, 4, 5, 6, 7]),
    ],
    ids=["all repeats", "some repeats", "repeats of two axes", "as many as there are"],
)
def test_the_parallel_optimizer_cuts_further(cut: Cut, rows: list[int]) -> None:
    """As MindSpore 2.7.0 itself places them (test_older_real.py)."""
    assert [cut.place(rank)[0] for rank in range(8)] == rows
