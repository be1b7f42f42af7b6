"""Legacy Megatron checkpoints: there and back over drawn layouts, from layout to layout, and what is refused."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st

from launcher.convert.layouts.stages import Stages, place_layers
from tests.convert import zoo
from tests.convert.helpers import launch, tensors
from tests.convert.tiny import tiny_llama
from tests.sampling import examples

EXPERTS = ("qwen2_moe", "qwen3_moe", "mixtral", "deepseek_v2", "deepseek_v2_lite", "deepseek_v3")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model of the zoo and the words that describe its layout."""

    name: str
    words: tuple[str, ...]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    # Gemma 2 in this format is MindSpeed-LLM's alone: it is converted there by --backend mindspeed.
    name = draw(st.sampled_from(sorted({*zoo.MODELS} - {*zoo.NO_LEGACY, "gemma2"})))
    tp, pp = draw(st.sampled_from((1, 2, 4))), draw(st.sampled_from((1, 2, 4)))
    words = [
        f"parallel.tp={tp}",
        f"parallel.pp={pp}",
        "--layers",
        draw(st.sampled_from(("local", "transformer_engine"))),
    ]
    if pp == 2:
        words += draw(
            st.sampled_from(
                (
                    [],
                    ["parallel.vpp=2"],
                    ["parallel.first_stage_layers=3"],
                    ["parallel.last_stage_layers=3"],
                    ["parallel.layout=Ettt|tL"],
                    ["parallel.vpp=2", "parallel.layout=E|tt|t|tL"],
                    ["parallel.noop_layers=[1,4]"],
                )
            )
        )
    if name in EXPERTS:
        etp = draw(st.sampled_from((None, 1, 2)))
        assume(etp is None or tp % etp == 0)
        words += [f"parallel.ep={draw(st.sampled_from((1, 2, 4)))}"] + ([f"parallel.etp={etp}"] if etp else [])
        words += draw(st.sampled_from(([], ["moe.grouped_gemm=true"])))
    return Case(name=name, words=tuple(words))


NAMED = {
    "dense": Case(name="qwen2", words=("parallel.tp=2", "parallel.pp=2", "parallel.vpp=2")),
    "tied, uneven": Case(name="qwen3", words=("parallel.pp=2", "parallel.first_stage_layers=3", "--layers", "local")),
    "experts one by one": Case(name="mixtral", words=("parallel.tp=2", "parallel.ep=2", "--layers", "local")),
    "fused experts": Case(
        name="qwen2_moe", words=("parallel.tp=2", "parallel.ep=2", "moe.grouped_gemm=true", "--layers", "local")
    ),
    "grouped experts": Case(
        name="qwen3_moe", words=("parallel.tp=2", "parallel.ep=4", "parallel.etp=1", "moe.grouped_gemm=true")
    ),
    "latent attention": Case(name="deepseek_v3", words=("parallel.tp=2", "parallel.pp=4", "--layers", "local")),
    "without query rank": Case(name="deepseek_v2_lite", words=("parallel.pp=2", "parallel.layout=Ettt|tL")),
}


@pytest.mark.parametrize("case", NAMED.values(), ids=NAMED.keys())
def test_every_byte_comes_back(case: Case, model: Callable[[str], Path]) -> None:
    _there_and_back(case, model)


@pytest.mark.slow
@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases())
def test_every_byte_comes_back_whatever_the_layout(case: Case, model: Callable[[str], Path]) -> None:
    _there_and_back(case, model)


def _there_and_back(case: Case, model: Callable[[str], Path]) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        legacy, back = folder / "legacy", folder / "back"
        assert (
            launch("hf-to-mcore", "--model", model(case.name), "--out", legacy, "--format", "legacy", *case.words) == 0
        )
        assert launch("mcore-to-hf", "--checkpoint", legacy, "--out", back) == 0
        assert tensors(back) == tensors(model(case.name))
    finally:
        shutil.rmtree(folder)


def _legacy(folder: Path, out: Path, *words: str) -> Path:
    assert launch("hf-to-mcore", "--model", folder, "--out", out, "--format", "legacy", *words) == 0
    return out


@pytest.mark.parametrize(
    "name,words",
    [
        ("qwen3", ["parallel.tp=4"]),
        ("qwen3", ["parallel.pp=4", "--layers", "local"]),
        ("qwen3_moe", ["parallel.ep=4", "parallel.tp=2", "parallel.etp=1", "moe.grouped_gemm=true"]),
        ("deepseek_v3", ["parallel.pp=2", "parallel.vpp=2", "parallel.ep=2", "--layers", "local"]),
    ],
    ids=str,
)
def test_from_layout_to_layout_and_to_torch_dist(
    name: str, words: list[str], model: Callable[[str], Path], tmp_path: Path
) -> None:
    first = _legacy(model(name), tmp_path / "first", "parallel.tp=2", "parallel.pp=2")
    steps = [("second", "legacy", words), ("dist", "torch_dist", []), ("third", "legacy", ["parallel.tp=2"])]
    source = first
    for out, form, layout in steps:
        target = tmp_path / out
        assert launch("reshard", "--checkpoint", source, "--out", target, "--format", form, *layout) == 0
        assert launch("verify", model(name), target) == 0
        source = target


def test_torch_reads_what_was_written(model: Callable[[str], Path], tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    out = _legacy(model("llama_tied"), tmp_path / "out", "parallel.tp=2", "parallel.pp=2", "--layers", "local")
    files = sorted(path.parent.name for path in out.glob("iter_0000001/*/model_optim_rng.pt"))
    assert files == ["mp_rank_00_000", "mp_rank_00_001", "mp_rank_01_000", "mp_rank_01_001"]
    last = torch.load(out / "iter_0000001" / files[3] / "model_optim_rng.pt", weights_only=False)
    assert (last["checkpoint_version"], last["iteration"]) == (3.0, 1)
    args = last["args"]
    assert (args.tensor_model_parallel_size, args.pipeline_model_parallel_size, args.ckpt_format) == (2, 2, "torch")
    first = torch.load(out / "iter_0000001" / files[2] / "model_optim_rng.pt", weights_only=False)
    embedding = first["model"]["embedding.word_embeddings.weight"]
    assert torch.equal(embedding, last["model"]["output_layer.weight"])  # tied, and the last stage needs its own
    assert (out / "latest_checkpointed_iteration.txt").read_text().strip() == "1"


def test_padded_vocabulary_comes_back_without_padding(model: Callable[[str], Path], tmp_path: Path) -> None:
    out = _legacy(model("llama"), tmp_path / "out", "tokenizer.make_vocab_size_divisible_by=128", "parallel.tp=2")
    assert launch("mcore-to-hf", "--checkpoint", out, "--out", tmp_path / "back") == 0
    assert tensors(tmp_path / "back") == tensors(model("llama"))


def test_sources_trained_in_a_release_folder_are_found(model: Callable[[str], Path], tmp_path: Path) -> None:
    out = _legacy(model("llama"), tmp_path / "out")
    (out / "iter_0000001").rename(out / "release")
    (out / "latest_checkpointed_iteration.txt").write_text("release")
    assert launch("verify", model("llama"), out) == 0


WRONG = {
    "not text": b"\xff\xfe",
    "empty": b"",
    "superscript": "²".encode(),
    "long": b"9" * 5000,
    "path": b"../x",
    "gone": b"7",
}


@pytest.mark.parametrize("kind", ["legacy", "torch_dist"])
@pytest.mark.parametrize("word", WRONG.values(), ids=WRONG)
def test_a_tracker_that_names_no_iteration_is_an_error(word, kind, tmp_path, capsys):
    """Of the legacy format, another iteration was taken without a word, and text in another encoding was a crash."""
    source, out = tiny_llama(tmp_path / "hf"), tmp_path / "out"
    assert launch("hf-to-mcore", "--model", source, "--out", out, "--format", kind) == 0
    tracker = out / "latest_checkpointed_iteration.txt"
    tracker.write_bytes(word)
    assert launch("mcore-to-hf", "--checkpoint", out, "--out", tmp_path / "back") == 1
    shown = capsys.readouterr().err
    assert str(tracker) in shown
    assert "internal error" not in shown
    if kind == "legacy" and word == b"7":
        works = shown.split("--checkpoint ")[1].split()[0]
        assert launch("mcore-to-hf", "--checkpoint", works, "--model", source, "--out", tmp_path / "back") == 0


def _damage_missing_rank(out: Path) -> None:
    shutil.rmtree(out / "iter_0000001" / "mp_rank_01_001")


def _damage_missing_ranks(out: Path) -> None:
    for folder in out.glob("iter_0000001/mp_rank_01*"):
        shutil.rmtree(folder)


def _damage_truncated(out: Path) -> None:
    file = out / "iter_0000001" / "mp_rank_00_001" / "model_optim_rng.pt"
    file.write_bytes(file.read_bytes()[:-1000])


def _damage_unsafe(out: Path) -> None:
    import pickle
    import zipfile

    class Evil:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            import os

            return os.system, ("touch /tmp/executed",)

    with zipfile.ZipFile(out / "iter_0000001" / "mp_rank_00_000" / "model_optim_rng.pt", "w") as file:
        file.writestr("model_optim_rng/data.pkl", pickle.dumps({"model": Evil()}, protocol=2))


@pytest.mark.parametrize(
    "damage,reported",
    [
        (_damage_missing_rank, "mp_rank_01_001/model_optim_rng.pt is missing"),
        (_damage_missing_ranks, "missing ranks"),
        (_damage_truncated, "mp_rank_00_001"),
        (_damage_unsafe, "system"),
    ],
)
def test_damaged_checkpoints_are_refused(
    damage: Callable[[Path], None],
    reported: str,
    model: Callable[[str], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = _legacy(model("llama"), tmp_path / "out", "parallel.tp=2", "parallel.pp=2")
    damage(out)
    assert launch("mcore-to-hf", "--checkpoint", out, "--out", tmp_path / "back", "--model", model("llama")) == 1
    assert reported in capsys.readouterr().err
    assert not (tmp_path / "back").exists()


@pytest.mark.parametrize(
    "name,words,reported",
    [
        ("llama", ["parallel.pp=3"], "cannot be shared equally by 3"),
        ("llama", ["parallel.tp=3"], "4 attention heads cannot be shared equally by tp 3"),
        ("qwen3_moe", ["parallel.ep=3"], "4 experts cannot be shared equally by 3"),
        ("qwen3_moe", ["parallel.etp=2"], "would write the same file"),
        ("llama", ["parallel.layout=Ett|tL", "parallel.pp=2"], "3 × t"),
    ],
    ids=str,
)
def test_layouts_that_do_not_come_out_are_refused(
    name: str,
    words: list[str],
    reported: str,
    model: Callable[[str], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert launch("hf-to-mcore", "--model", model(name), "--out", tmp_path / "out", "--format", "legacy", *words) == 1
    assert reported in capsys.readouterr().err


@pytest.mark.parametrize(
    "stages,layers,expected",
    [
        (Stages(pp=2), 4, [[0, 1], [2, 3]]),
        (Stages(pp=2, vpp=2), 8, [[0, 1], [2, 3], [4, 5], [6, 7]]),
        (Stages(pp=3, first=1, last=1), 4, [[0], [1, 2], [3]]),
        (Stages(pp=2, account_for_embedding=True, account_for_loss=True), 6, [[0, 1, 2], [3, 4, 5]]),
        (Stages(pp=2, account_for_loss=True), 5, [[0, 1, 2], [3, 4]]),
        (Stages(pp=2, noop=(0, 5)), 4, [[0, 1], [2, 3]]),
        (Stages(pp=2, vpp=2, folded=True), 8, [[0, 1], [2, 3], [4, 5], [6, 7]]),
        (Stages(pp=2, layout="Et*3|tL"), 4, [[0, 1, 2], [3]]),
    ],
    ids=str,
)
def test_layers_lie_where_megatron_builds_them(stages: Stages, layers: int, expected: list[list[int]]) -> None:
    chunks = place_layers(stages, layers, 0)
    assert [[layer for _, layer in chunk.layers] for chunk in chunks] == expected
    assert (chunks[0].first, chunks[-1].head, chunks[-1].norm) == (True, True, True)
    if stages.folded:
        assert [(chunk.stage, chunk.virtual) for chunk in chunks] == [(0, 0), (1, 0), (1, 1), (0, 1)]


STAGES = {
    "even": (Stages(pp=4), 8),
    "chunks": (Stages(pp=2, vpp=2), 8),
    "first stage": (Stages(pp=4, first=2), 8),
    "last stage": (Stages(pp=4, last=2), 8),
    "both, with chunks": (Stages(pp=4, vpp=2, first=2, last=2), 12),
    "embedding counts": (Stages(pp=4, account_for_embedding=True), 7),
    "both count, with chunks": (Stages(pp=2, vpp=2, account_for_embedding=True, account_for_loss=True), 6),
    "layout": (Stages(pp=4, layout="Ett|t|tt|tL"), 6),
}


@pytest.mark.slow
@pytest.mark.parametrize("stages,layers", STAGES.values(), ids=STAGES.keys())
def test_megatron_core_builds_these_layers(stages: Stages, layers: int) -> None:
    block = pytest.importorskip("megatron.core.transformer.transformer_block", reason="the extra `rehearsal`")
    from megatron.core import parallel_state
    from megatron.core.transformer.transformer_config import TransformerConfig
    from megatron.core.transformer.transformer_layer import get_transformer_layer_offset

    config = TransformerConfig(
        num_layers=layers,
        hidden_size=8,
        num_attention_heads=1,
        use_cpu_initialization=True,
        pipeline_dtype="float32",
        pipeline_model_parallel_size=stages.pp,
        virtual_pipeline_model_parallel_size=stages.vpp if stages.vpp > 1 else None,
        num_layers_in_first_pipeline_stage=stages.first,
        num_layers_in_last_pipeline_stage=stages.last,
        account_for_embedding_in_pipeline_split=stages.account_for_embedding,
        account_for_loss_in_pipeline_split=stages.account_for_loss,
        pipeline_model_parallel_layout=stages.layout,
    )
    for chunk in place_layers(stages, layers, 0):
        parallel_state.set_pipeline_model_parallel_rank(chunk.stage)
        virtual = chunk.virtual if stages.vpp > 1 else None
        first = get_transformer_layer_offset(config, virtual, chunk.stage)
        count = block.get_num_layers_to_build(config, virtual, chunk.stage)
        assert [layer for _, layer in chunk.layers] == list(range(first, first + count))
    parallel_state.set_pipeline_model_parallel_rank(None)


@pytest.mark.parametrize("name", ["llama", "qwen3_moe"])
def test_a_stage_of_no_op_layers_alone_has_its_files(name: str, model: Callable[[str], Path], tmp_path: Path) -> None:
    words = ("parallel.pp=3", "parallel.noop_layers=[2,3]", "parallel.tp=2")
    out = _legacy(model(name), tmp_path / "out", *words)
    ranks = sorted(path.parent.name for path in out.glob("iter_0000001/*/model_optim_rng.pt"))
    assert ranks == [f"mp_rank_{tp:02d}_{stage:03d}" for tp in range(2) for stage in range(3)]
    assert launch("mcore-to-hf", "--checkpoint", out, "--out", tmp_path / "back") == 0
    assert tensors(tmp_path / "back") == tensors(model(name))


def test_a_stage_without_parameters_is_refused_for_mindformers(
    model: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, words in {"llama": ("--set", "use_legacy=true"), "qwen3": ()}.items():
        args = ("--model", model(name), "--out", tmp_path / name, "--backend", "mindformers", "--set", "per_rank=true")
        more = (*words, "parallel.noop_layers=[2,3]")
        assert launch("hf-to-mcore", *args, *more, "parallel.pp=3") == 1
        assert (
            "pipeline stage 1 would hold no parameters; works: parallel.pp=1 · parallel.pp=2" in capsys.readouterr().err
        )
        assert launch("hf-to-mcore", *args, *more, "parallel.pp=2") == 0
