"""What the command says: plans without writing, reports for people and programs, resuming after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
import xxhash

from backends import BUILT_IN
from tests.convert.helpers import launch, write

ROOT = Path(__file__).resolve().parents[2]


def test_a_dry_run_writes_nothing(
    model: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ("hf-to-mcore", "--model", model("deepseek_v3"), "--out", tmp_path / "core", "--dry-run")
    assert launch(*args) == 0
    assert "nothing was written" in capsys.readouterr().out
    assert launch(*args, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["expected"]["bytes_needed"] == answer["bytes_written"] == answer["bytes_read"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["numpy", "xxhash"])
def test_a_missing_library_is_named_before_anything_is_written(
    model: Callable[[str], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    folder = model("llama")  # writing it needs both libraries
    monkeypatch.setitem(sys.modules, name, None)
    assert launch("hf-to-mcore", "--model", folder, "--out", tmp_path / "core") == 1
    assert f"{name} is needed" in (err := capsys.readouterr().err)
    assert "works: pip install 'launch-llm[convert]'" in err
    assert list(tmp_path.iterdir()) == []


def test_the_report_lies_beside_the_weights(
    model: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    back = tmp_path / "back"
    assert launch("hf-to-mcore", "--model", model("qwen2"), "--out", tmp_path / "core") == 0
    capsys.readouterr()
    assert launch("mcore-to-hf", "--checkpoint", tmp_path / "core", "--out", back, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report.pop("ok") is True
    assert report == json.loads((back / "conversion.json").read_text())
    assert report["verified"] is True
    assert report["tensors_written"] == len(report["digests"])
    from tests.convert.helpers import tensors

    data = tensors(back)["model.norm.weight"][2]
    assert report["digests"]["model.safetensors:model.norm.weight"] == f"xxh3:{xxhash.xxh3_128_hexdigest(data)}"


def test_nothing_heavy_is_imported_for_help_and_no_torch_for_a_conversion(
    model: Callable[[str], Path], tmp_path: Path
) -> None:
    code = (
        "import sys; from launcher.cli import main; code = main(sys.argv[1:]);"
        "print([name for name in ('torch', 'numpy', 'hydra') if name in sys.modules]); sys.exit(code)"
    )
    args = ["hf-to-mcore", "--model", str(model("llama")), "--out", str(tmp_path / "core")]
    copied = [*args[:-1], str(tmp_path / "copied"), "--no-verify"]
    split = [*args[:-1], str(tmp_path / "split"), "--no-verify", "--backend", BUILT_IN[0], "parallel.tp=2"]
    for extra, expected in ((["--help"], "[]"), (args, "['numpy']"), (copied, "[]"), (split, "[]")):
        done = subprocess.run(
            [sys.executable, "-c", code, "convert", *extra], cwd=ROOT, capture_output=True, text=True, check=True
        )
        assert done.stdout.splitlines()[-1] == expected


def _large(folder: Path) -> Path:
    """About 200 MB in some hundred tensors."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 512,
        "intermediate_size": 2048,
        "num_hidden_layers": 24,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "vocab_size": 4096,
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
    }
    from launcher.convert.layouts.huggingface import huggingface_wanted
    from launcher.convert.logical import logical_model
    from launcher.convert.model import model_in

    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    rng = numpy.random.default_rng(3)
    wanted = huggingface_wanted(logical_model(model_in(folder)))
    arrays = {tensor.name: rng.standard_normal(tensor.shape, dtype="float32") for tensor in wanted}
    return write(folder, arrays, config)


@pytest.mark.slow
@pytest.mark.parametrize("finished", [3, 60])
@pytest.mark.parametrize("form", [(), ("--format", "legacy", "parallel.tp=2")], ids=("torch_dist", "legacy"))
def test_a_killed_conversion_goes_on(finished: int, form: tuple[str, ...], tmp_path: Path) -> None:
    folder, out, other = _large(tmp_path / "hf"), tmp_path / "core", tmp_path / "other"
    args = [sys.executable, "-m", "launcher", "convert", "hf-to-mcore", "--model", str(folder), "--workers", "1"]
    args += form
    process = subprocess.Popen([*args, "--out", str(out)], cwd=ROOT, stdout=subprocess.DEVNULL)
    journal = tmp_path / "core.partial.journal"
    while process.poll() is None:
        if journal.exists() and journal.read_bytes().count(b'"done"') >= finished:
            os.kill(process.pid, signal.SIGKILL)
            break
        time.sleep(0.0005)
    killed = process.wait() == -signal.SIGKILL
    assert killed, "finished before it could be killed"
    assert not out.exists()
    again = subprocess.run([*args, "--out", str(out)], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "continuing an interrupted conversion" in " ".join(again.stderr.split())
    assert not journal.exists()
    assert not (tmp_path / "core.partial").exists()
    assert launch("hf-to-mcore", "--model", folder, "--out", other, *form) == 0
    names = [path.relative_to(out) for path in out.rglob("*") if path.is_file() and path.name != "conversion.json"]
    assert sorted(names) == sorted(
        path.relative_to(other) for path in other.rglob("*") if path.is_file() and path.name != "conversion.json"
    )
    for name in names:
        if name.suffix in (".distcp", ".pt"):
            assert (out / name).read_bytes() == (other / name).read_bytes()
    digests = [json.loads((root / "conversion.json").read_text())["digests"] for root in (out, other)]
    assert digests[0] == digests[1]
