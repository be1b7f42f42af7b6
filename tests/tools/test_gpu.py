"""tools/gpu: the refusal without a GPU, the jobs of the layouts, the table, and the whole script on the CPU."""

import dataclasses
import json
import math
import os
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from launcher.compose import compose
from launcher.parity.runs import Iteration, Trained
from launcher.pipeline import judge
from launcher.runtime import has_device, planned
from tests.conftest import ROOT
from tools.gpu.archive import missing, requirement
from tools.gpu.device import Device
from tools.gpu.engine import pruned
from tools.gpu.layouts import LAYOUTS, SCALES, words_of
from tools.gpu.runs import Run, Runner
from tools.gpu.steps import STEPS, Verification, _beside, _no_fp8, _trained, rows_of
from tools.gpu.table import HEADING, Row, markdown, marked, passed, with_section

H200 = Device(kind="cuda", name="NVIDIA H200", memory_gib=139.8, capability=(9, 0), software={"torch": "2.11.0+cu130"})


def script(*words: str, seconds: float = 30) -> "subprocess.CompletedProcess[str]":
    environ = {**os.environ, "PYTHON": sys.executable, "NO_COLOR": "1"}
    command = [str(ROOT / "tools" / "gpu" / "verify.sh"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds, env=environ)


@pytest.mark.skipif(has_device(("cuda",)), reason="this machine has a GPU")
def test_a_machine_without_a_gpu_is_told_so_in_one_sentence() -> None:
    done = script()
    assert done.returncode == 1
    (line,) = done.stdout.strip().splitlines()
    assert "no NVIDIA GPU to verify on" in line
    assert "--device cpu" in line
    assert not done.stderr


def test_the_page_is_for_whole_runs_on_a_gpu() -> None:
    done = script("--device", "cpu", "--page")
    assert done.returncode == 2
    assert "--page is for a run of all steps on a GPU" in done.stderr


@pytest.mark.sample(keep=7)
@pytest.mark.parametrize("kind", SCALES)
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda each: f"{each.model}, {each.name}")
def test_every_layout_is_a_job_that_can_be_rehearsed_and_estimated(kind: str, layout: Any) -> None:
    from launcher.api import estimate

    for layers in ("local", "transformer_engine"):
        words = words_of(layout, SCALES[kind], layers)
        plan = planned(judge(compose([*words, f"rehearse.device={kind}"]), fixes=False))
        assert ("--transformer-impl local" in " ".join(plan.nodes[0].argv)) is (layers == "local")
    found = estimate(compose([*words, "hardware=h200"])).as_tree()
    assert found["fits"]
    assert kind == "cpu" or found["memory"]["per_stage"][0]["peak_allocated"] > 10 * 2**30


def test_at_least_eight_layouts_are_measured() -> None:
    assert len({(layout.model, layout.name) for layout in LAYOUTS}) == len(LAYOUTS) >= 8


@pytest.mark.parametrize(
    ("name", "hardware"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100_80g"),
        ("NVIDIA A100 80GB PCIe", "a100_80g_pcie"),
        ("NVIDIA A100-SXM4-80GB", "a100_80g"),
        ("NVIDIA GeForce RTX 4090", None),
    ],
)
def test_hardware_by_the_device_s_name(name: str, hardware: str | None) -> None:
    assert dataclasses.replace(H200, name=name).hardware == hardware
    assert hardware is None or (ROOT / "conf" / "hardware" / f"{hardware}.yaml").is_file()


def test_why_fp8_is_not_run() -> None:
    assert _no_fp8(H200) == "Transformer Engine is not installed"
    ampere = dataclasses.replace(H200, capability=(8, 0), transformer_engine="2.9")
    assert "is below 8.9" in _no_fp8(ampere)
    assert _no_fp8(dataclasses.replace(H200, transformer_engine="2.9")) == ""


def run(*losses: float, problem: str = "", layers: str = "local") -> Run:
    iterations = tuple(Iteration(iteration=i, loss=loss, grad_norm=1.0) for i, loss in enumerate(losses, 1))
    trained = Trained(label="x", iterations=iterations, problem=problem, command="", log="", seconds=1.0)
    finite = [loss if math.isfinite(loss) else None for loss in losses]
    return Run(trained=trained, result={"losses": finite, "layers": layers, "milliseconds": [900.0, 80.0, 9.0, 11.0]})


def test_rows_of_trainings() -> None:
    assert _trained("c", "w", run(5.0, 4.0)).figures == "loss 5.0000 to 4.0000 in 2 iterations, 10.0 ms a step"
    assert _trained("c", "w", run(5.0, math.nan)).status == "failed"
    assert _trained("c", "w", run(problem="CUDA out of memory")).figures == "CUDA out of memory"
    assert "ran on local layers" in _trained("c", "w", run(5.0, 4.0), layers="transformer_engine").figures


def test_rows_beside_the_cpu() -> None:
    losses = (5.0, 4.5, 4.0, 3.5, 3.0, 2.5)
    assert _beside("c", "w", run(*losses), run(*losses), "fp32").status == "ok"
    other = _beside("c", "w", run(*losses[:-1], 2.501), run(*losses), "fp32")
    assert other.status == "differs"
    assert "from iteration 6: loss 2.501 beside 2.5, tolerance 1e-05" in other.figures
    assert _beside("c", "w", run(*losses[:-1], 2.501), run(*losses), "bf16").status == "ok"
    assert _beside("c", "w", run(*losses[:2], problem="stopped after 150 s"), run(*losses), "fp32").status == "failed"


def test_what_the_time_does_not_allow_is_in_the_table(tmp_path: Path) -> None:
    shared = Verification(device=H200, runner=Runner(folder=tmp_path, deadline=0.0), hardware="h200")
    rows = [row for name in STEPS for row in rows_of(name, shared)]
    assert {row.figures for row in rows} == {"the time was used up"}
    assert sum(row.check == "estimate" for row in rows) == len(LAYOUTS)
    assert not any(tmp_path.iterdir())


@pytest.mark.slow
def test_a_training_that_does_not_end_is_stopped_and_told(tmp_path: Path) -> None:
    runner = Runner(folder=tmp_path, deadline=time.monotonic() + 60, longest=1)
    found = runner.train("tiny", ("+recipe=tiny_qwen3", "backend=megatron_lm"), "cpu")
    assert found.trained.problem == "stopped after 1 s"
    assert not found.result


def test_the_table_and_its_section_of_the_page() -> None:
    rows = [
        Row(check="parity", what="dense", status="ok", figures="loss 1e-07"),
        Row(check="calibrate", what="launch calibrate", status="not run", figures="a | b"),
    ]
    table = markdown(rows).splitlines()
    assert table[0].startswith("| check     | what             | result  | measured |")
    assert [line.count("|") for line in table] == [5] * 4
    assert marked("\n".join(table)).splitlines() == ["<!-- verify: begin -->", *table, "<!-- verify: end -->"]
    assert passed(rows)
    assert not passed([*rows, dataclasses.replace(rows[0], status="differs")])
    page = "# Page\n\ntext\n"
    once = with_section(page, f"{HEADING}\n\nold")
    assert once == f"# Page\n\ntext\n\n{HEADING}\n\nold\n"
    assert with_section(once + "\n## Next\n\nlast\n", f"{HEADING}\n\nnew") == (
        f"# Page\n\ntext\n\n{HEADING}\n\nnew\n\n## Next\n\nlast\n"
    )


def test_the_page_says_what_ran() -> None:
    section = (ROOT / "tools" / "parity" / "gpu.md").read_text(encoding="utf-8")
    assert section.strip() in (ROOT / "docs" / "parity.md").read_text(encoding="utf-8")
    assert ("It never ran on a GPU" in section) is ("| check " not in section)


def test_the_archive_has_the_project_s_versions(tmp_path: Path) -> None:
    assert requirement("megatron-core") == "megatron-core==0.16.1"
    assert requirement("omegaconf").startswith("omegaconf>=")
    assert requirement("mdurl") == "mdurl"
    for name in ("rich-15.0.0-py3-none-any.whl", "no_such_package-1.0-py3-none-any.whl"):
        (tmp_path / name).touch()
    assert [wheel.name for wheel in missing(tmp_path)] == ["no_such_package-1.0-py3-none-any.whl"]


def entry(architecture: int, code: bytes, kind: int = 2) -> bytes:
    """Return an entry of a fat binary, as `cuobjdump` reads them: 64 bytes of header, and the code."""
    return struct.pack("<HHIQ12xI32x", kind, 0x101, 64, len(code), architecture) + code


def test_machine_code_of_other_gpus_is_zeros() -> None:
    old, own, intermediate = entry(80, b"a" * 40), entry(90, b"b" * 24), entry(90, b"ptx!" * 2, kind=1)
    magic = b"\x50\xed\x55\xba"
    binary = magic + struct.pack("<HHQ", 1, 16, len(old + own + intermediate))
    library = b"text" + magic + b"by chance" + binary + old + own + intermediate + b"end" + magic
    zeros = old[:64] + bytes(40) + own + intermediate[:64] + bytes(8)
    assert pruned(library, 90) == b"text" + magic + b"by chance" + binary + zeros + b"end" + magic


@pytest.mark.slow
def test_the_script_measures_on_the_cpu(tmp_path: Path) -> None:
    steps = ("--only", "checkpoint", "--only", "calibrate", "--only", "layouts", "--layouts", "1")  # four trainings
    done = script("--device", "cpu", *steps, "--json", str(tmp_path / "found.json"), seconds=300)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {row["check"]: row for row in json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))["rows"]}
    assert rows["checkpoint"]["status"] == "ok"
    assert "loss 0e+00, gradient norm 0e+00" in rows["checkpoint"]["figures"]  # the same processor twice
    assert rows["calibrate"]["status"] == "ok"
    assert "memory" in rows["calibrate"]["figures"]
    assert "GiB peak of the process (estimate " in rows["estimate"]["figures"]
    assert "| estimate " in done.stdout
