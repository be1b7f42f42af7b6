"""Every written byte is compared with its source; checksums of archives are those of what was written."""

from __future__ import annotations

import dataclasses
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

from launcher.convert import convert, prove
from launcher.convert.containers import safetensors
from launcher.convert.containers.dtypes import nbytes
from launcher.convert.containers.transfer import OpenFiles
from launcher.convert.ownership import REPORT
from launcher.convert.verify import Digest
from tests.convert.helpers import convert_until_the_disk_is_full, launch, tensors, write

Zoo = Callable[[str], Path]
_COLUMNS = 512
FORMATS: dict[str, tuple[str, ...]] = {
    "torch_dist": (),
    "legacy": ("--format", "legacy", "parallel.tp=2", "parallel.pp=2"),
    "legacy, cast": ("--format", "legacy", "parallel.tp=2", "--dtype", "fp16"),
    "mindformers": ("--backend", "mindformers"),
}


@pytest.fixture
def wide(tmp_path: Path) -> Path:
    """A Qwen3 whose heads are long enough for plain copies of the parts of QKV."""
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": _COLUMNS,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "vocab_size": 100,
        "max_position_embeddings": 64,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": False,
    }
    shapes = {"model.embed_tokens": (100, _COLUMNS), "lm_head": (100, _COLUMNS), "model.norm": (_COLUMNS,)}
    for layer in (f"model.layers.{number}" for number in range(2)):
        shapes |= {f"{layer}.self_attn.{name}_proj": (256, _COLUMNS) for name in "kv"}
        shapes |= {f"{layer}.self_attn.{name}_proj": (_COLUMNS, _COLUMNS) for name in "qo"}
        shapes |= {f"{layer}.self_attn.{name}_norm": (128,) for name in "qk"}
        shapes |= {f"{layer}.mlp.{name}_proj": (256, _COLUMNS) for name in ("gate", "up")}
        shapes |= {f"{layer}.mlp.down_proj": (_COLUMNS, 256)}
        shapes |= {f"{layer}.{name}_layernorm": (_COLUMNS,) for name in ("input", "post_attention")}
    drawn = numpy.random.default_rng(0)
    arrays = {f"{name}.weight": drawn.standard_normal(shape).astype("float32") for name, shape in shapes.items()}
    return write(tmp_path / "wide", arrays, config)


@pytest.mark.parametrize("name", ["legacy", "mindformers"])
def test_rows_that_alternate_are_written_as_element_by_element(
    name: str, wide: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gate and up of MindFormers, on the way back the ranks' parts of rows: copied in both directions."""
    args = ("hf-to-mcore", "--model", wide, *FORMATS[name])
    assert launch(*args, "--out", tmp_path / "copied") == 0
    assert launch("mcore-to-hf", "--checkpoint", tmp_path / "copied", "--model", wide, "--out", tmp_path / "back") == 0
    assert tensors(tmp_path / "back") == tensors(wide)
    monkeypatch.setattr("launcher.convert.spans._SHORT_ROW", 2**30)
    assert launch(*args, "--out", tmp_path / "assembled") == 0
    for folder in ("copied", "assembled"):
        (tmp_path / folder / REPORT).unlink()
    files = [
        {file.relative_to(folder): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
        for folder in (tmp_path / "copied", tmp_path / "assembled")
    ]
    assert files[0] == files[1]


@pytest.mark.parametrize("place", ["first", "last"])
@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_one_wrong_byte_of_any_tensor_is_found(
    form: tuple[str, ...],
    place: str,
    wide: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    really, flipped = prove.compare, list[str]()

    def compared(left, right, **options):  # type: ignore[no-untyped-def]
        for content in right:
            at = content.slot.offset + (0 if place == "first" else nbytes(content.slot) - 1)
            with content.slot.path.open("r+b") as file:
                file.seek(at)
                (byte,) = file.read(1)
                file.seek(at)
                file.write(bytes([byte ^ 1]))
            if content.boxes and not (content.fill and place == "last"):
                flipped.append(content.slot.name)
        return really(left, right, **options)

    monkeypatch.setattr(prove, "compare", compared)
    assert launch("hf-to-mcore", "--model", wide, "--out", tmp_path / "out", *form, "--json") == 1
    captured = capsys.readouterr()
    found = captured.out + captured.err
    assert flipped
    assert all(f"{name} differ in 1 of" in found for name in flipped)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("form", [("--format", "legacy"), FORMATS["legacy"]], ids=["one rank", "tp 2, pp 2"])
def test_tensors_written_from_each_others_source_are_found(
    form: tuple[str, ...],
    wide: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What was written is intact, and the digests are those of what was written: only the plan was wrong."""
    really = convert._move

    def moved(prepared: Any, contents: Any, *args: Any, **named: Any) -> Any:
        moves = list(prepared.plan.moves)
        names = [content.slot.name for content in contents]
        one, other = (
            next(at for at, name in enumerate(names) if norm in name)
            for norm in ("linear_fc1.layer_norm", "linear_qkv.layer_norm")
        )
        moves[one], moves[other] = moves[other], moves[one]
        plan = dataclasses.replace(prepared.plan, moves=tuple(moves))
        swapped.extend(names[at] for at in (one, other))
        return really(dataclasses.replace(prepared, plan=plan), contents, *args, **named)

    swapped: list[str] = []
    monkeypatch.setattr(convert, "_move", moved)
    assert launch("hf-to-mcore", "--model", wide, "--out", tmp_path / "out", *form, "--json") == 1
    captured = capsys.readouterr()
    assert len(swapped) == 2
    assert all(f"{name} differ in " in captured.out + captured.err for name in swapped)
    assert not (tmp_path / "out").exists()


def test_archives_have_the_checksums_of_what_was_written(
    wide: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ("hf-to-mcore", "--model", wide, *FORMATS["legacy"], "--no-verify", "--workers", "1")
    convert_until_the_disk_is_full(monkeypatch, args, tmp_path / "whole", tmp_path / "continued")
    assert launch(*args, "--out", tmp_path / "continued") == 0
    assert "continuing" in capsys.readouterr().err
    files = sorted(tmp_path.rglob("*.pt"))
    assert len(files) == 8
    for file in files:
        with zipfile.ZipFile(file) as archive:
            assert archive.testzip() is None, file


@pytest.mark.parametrize("form", ["legacy", "torch_dist"])
def test_ranks_that_share_a_tensor_read_it_one_after_the_other(
    form: str, wide: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that is larger than memory would be read from its disk once per rank."""
    stored = {slot.offset: slot for slot in safetensors.read(wide).slots}
    read: list[str] = []
    really = OpenFiles.load

    def load(files: OpenFiles, path: Path, start: int, count: int) -> None:
        if path.parent == wide:
            read.append(stored[max(offset for offset in stored if offset <= start)].name)
        really(files, path, start, count)

    monkeypatch.setattr(OpenFiles, "load", load)
    layout = ("parallel.tp=2", "parallel.pp=2") if form == "legacy" else ()
    args = ["--model", wide, "--out", tmp_path / "out", "--format", form, "--no-verify", "--workers", "1", *layout]
    assert launch("hf-to-mcore", *args) == 0
    assert {slot.name for slot in stored.values() if nbytes(slot) >= 2**17} <= set(read)
    for name in set(read):
        between = read[read.index(name) : len(read) - read[::-1].index(name)]
        together = next(
            (each for each in (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj")) if _last(name) in each), ()
        )
        assert set(map(_last, between)) <= {_last(name), *together}, (name, between)


def _last(name: str) -> str:
    return name.removesuffix(".weight").rpartition(".")[2]


def test_the_digest_of_no_bytes():
    digest = Digest("BF16")
    digest.add(memoryview(b""))
    assert str(digest) == "xxh3:99aa06d3014798d86001c324468d497f"
    assert (digest.nan, digest.infinite) == (0, 0)
