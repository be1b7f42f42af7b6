"""`launch estimate`: JSON of the contract, one screen, pictures, trace, and one clear error for each bad input."""

import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from launcher.cli import main
from launcher.compose import ComposeError, compose
from launcher.estimate.check import problems
from launcher.job import with_values
from launcher.job.finding import Finding
from launcher.job.hardware import Hardware

QWEN = ["estimate", "+recipe=qwen3_moe", "hardware=h100_80g", "cluster.nodes=4"]


def run(args: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(args)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def launch(capsys: pytest.CaptureFixture[str]) -> Any:
    return lambda *args: run(list(args), capsys)


def test_json_is_the_contract(launch: Any) -> None:
    code, out, _ = launch(*QWEN, "--json")
    tree = json.loads(out)
    assert code == 0
    assert tree["fits"] is True
    assert {"per_stage", "capacity"} <= set(tree["memory"])
    keys = {"stage", "weights", "gradients", "optimizer", "activations", "workspace", "peak_allocated", "peak_reserved"}
    assert all(keys <= set(stage) for stage in tree["memory"]["per_stage"])
    assert {"step_s", "forward_s", "backward_s", "bubble_s", "exposed_comm_s", "optimizer_s"} <= set(tree["time"])
    assert {"total", "active", "per_stage"} <= set(tree["parameters"])
    assert 0 < tree["mfu"] < 1
    assert tree["tokens_per_s_per_device"] > 0
    assert any("not measured" in line for line in tree["missing"])


def test_one_screen(launch: Any) -> None:
    code, out, _ = launch(*QWEN)
    assert code == 0
    assert "fits" in out
    assert "tokens/s per device" in out
    assert len(out.splitlines()) < 40


def test_a_range_of_memory_is_that_of_the_figure_beside_it(launch: Any) -> None:
    (_, text, _), (_, tree, _) = launch(*QWEN), launch(*QWEN, "--json")
    found = json.loads(tree)
    used, outside = max(stage["peak_reserved"] for stage in found["memory"]["per_stage"]), found["memory"]["outside"]
    low, high = ((used * found["memory_range"][end] + outside) / 2**30 for end in ("low", "high"))
    assert f"memory {low:.1f} to {high:.1f} GiB" in text
    assert low < (used + outside) / 2**30 < high


def test_models_beside_the_trained_one_are_said_not_to_be_counted(launch: Any) -> None:
    words = ("+recipe=qwen3_8b_gkd", "hardware=h100_80g", "cluster.nodes=2")
    (_, text, _), (_, tree, _) = launch("estimate", *words), launch("estimate", *words, "--json")
    assert "task.type gkd: counted like one plain sequence each, without a reference model, a teacher" in text
    assert json.loads(tree)["fit_probability"] is None  # every measured run trained one model
    assert "no run like this one was measured" in text
    assert "task.type" not in launch(*QWEN)[1]


def test_without_a_peak_the_answer_says_why_it_has_no_time(launch: Any) -> None:
    code, out, _ = launch(*QWEN, "hardware.bf16_tflops=null")
    assert code == 0
    assert "is not known (hardware.bf16_tflops); works: hardware=h100_80g" in " ".join(out.split())


def test_what_does_not_fit_is_an_answer_with_changes(launch: Any) -> None:
    code, out, _ = launch(*QWEN, "hardware.memory_gib=32")
    assert code == 0
    assert "does not fit" in out
    assert "makes it fit" in out


BAD = {
    "memory of 0": (["hardware.memory_gib=0"], "EST-HARDWARE", "hardware.memory_gib"),
    "layers that do not divide": (["parallel.pp=7", "cluster.nodes=7"], "PAR-PP-LAYERS", "parallel.pp"),
    "recompute beyond the chunk": (
        ["recompute.granularity=full", "recompute.method=uniform", "recompute.num_layers=40"],
        "EST-RECOMPUTE",
        "recompute.num_layers",
    ),
    "fp8 without fp8": (["hardware=a100_80g", "precision.fp8_format=e4m3"], "FP8-HARDWARE", "precision.fp8_format"),
    "world": (["parallel.tp=3"], "PAR-WORLD", "parallel.tp"),
    "efficiency of 0": (["hardware.matmul_efficiency=0"], "EST-HARDWARE", "hardware.matmul_efficiency"),
    "sequence": (["parallel.cp=8", "batch.seq_length=4100"], "EST-SEQUENCE", "batch.seq_length"),
    "mem_factor": (["estimate.mem_factor=1.5"], "EST-MEM-FACTOR", "estimate.mem_factor"),
    "no layers on the first stage": (["parallel.first_stage_layers=0"], "EST-STAGES", "first_stage_layers"),
    "layers without end": (["model.num_hidden_layers=1000000000"], "JOB-BOUND", "model.num_hidden_layers"),
    "a layout without end": (["parallel.layout=Et*999999999|L"], "JOB-BOUND", "parallel.layout"),
    "experts": (["parallel.ep=3"], "", "parallel.ep"),
    "efficiency above the peak": (["hardware.matmul_efficiency=7"], "EST-SHARES", "hardware.matmul_efficiency"),
    "more offloaded than there is": (
        ["offload.optimizer=true", "offload.optimizer_fraction=3"],
        "EST-SHARES",
        "offload.optimizer_fraction",
    ),
    "capacity of 0": (["moe.capacity_factor=0"], "EST-SHARES", "moe.capacity_factor"),
    "heads that do not share": (["model.num_key_value_heads=5"], "SENSE-HEADS", "model.num_key_value_heads"),
    "a layout of other layers": (["parallel.layout=EttL"], "EST-STAGES", "parallel.layout"),
    "letters that are no layout": (["parallel.layout=xyz"], "EST-STAGES", "parallel.layout"),
    "virtual stages": (["parallel.vpp=5"], "PAR-PP-LAYERS", "parallel.vpp"),
    "more experts a token than there are": (["model.num_experts_per_tok=500"], "MOE-TOPK", "model.num_experts"),
    "global batch": (["batch.global_batch_size=7"], "BATCH-GLOBAL", "batch.global_batch_size"),
    "MXFP8 on Hopper": (
        ["precision.fp8_format=e4m3", "precision.fp8_recipe=mxfp8"],
        "FP8-HARDWARE",
        "fp8_recipe=blockwise",
    ),
    "NVFP4 on Hopper": (["precision.fp4_format=e2m1"], "FP4-HARDWARE", "fp4_format=null precision.fp8_format=hybrid"),
    "a peak of 0": (
        ["hardware=b200", "hardware.nvfp4_tflops=0", "precision.fp4_format=e2m1"],
        "EST-HARDWARE",
        "hardware.nvfp4_tflops",
    ),
    "a domain that the host does not divide": (
        ["hardware.domain_devices=20"],
        "EST-TOPOLOGY",
        "works: hardware.domain_devices=16",
    ),
    "a domain that is smaller than the host": (
        ["hardware.domain_devices=5"],
        "EST-TOPOLOGY",
        "works: hardware.domain_devices=8",
    ),
    "a domain that does not divide the machine": (
        ["hardware.domain_devices=24"],
        "EST-TOPOLOGY",
        "works: hardware.domain_used_devices=16",
    ),
    "a domain of fewer devices than are used": (
        ["hardware.domain_devices=16", "hardware.domain_used_devices=32"],
        "EST-TOPOLOGY",
        "works: hardware.domain_used_devices=16",
    ),
    "links of a domain faster than the host's": (
        ["hardware.domain_devices=16", "hardware.domain_gbs=600"],
        "EST-TOPOLOGY",
        "works: hardware.domain_gbs=450",
    ),
    "a spine without rails": (["hardware.spine_gbs=10"], "EST-TOPOLOGY", "works: hardware.spine_gbs=null"),
    "a spine faster than the adapter": (
        ["hardware.rail_devices=16", "hardware.spine_gbs=100"],
        "EST-TOPOLOGY",
        "works: hardware.spine_gbs=50",
    ),
    "a rail of parts of nodes": (["hardware.rail_devices=12"], "EST-TOPOLOGY", "works: hardware.rail_devices=8"),
    "a rail that does not divide the machine": (
        ["hardware.rail_devices=24"],
        "EST-TOPOLOGY",
        "works: hardware.rail_devices=16",
    ),
    "Ascend without fp8": (["hardware=ascend_910b", "precision.fp8_format=e4m3"], "FP8-HARDWARE", "fp8_format"),
}


@pytest.mark.parametrize("backend", [(), ("backend=mindspeed",)], ids=["any backend", "a backend"])
def test_what_works_has_been_tried(backend: tuple[str, ...], launch: Any) -> None:
    words = ("estimate", "+recipe=llama3_70b", "hardware=h100_80g", "cluster.nodes=2", *backend)
    code, out, err = launch(*words)
    assert (code, out) == (1, "")
    assert "works: parallel.tp=4 · parallel.pp=2 · parallel.tp=2" in err
    assert "does not fit: " in launch(*words, "parallel.pp=2")[1]  # an estimate, if not one that fits


@pytest.mark.parametrize(("args", "rule", "field"), BAD.values(), ids=list(BAD))
def test_bad_input_is_refused_with_its_field(args: list[str], rule: str, field: str, launch: Any) -> None:
    code, _, err = launch(*QWEN, *args)
    assert code == 1
    assert rule in err
    assert field in err
    assert "Traceback" not in err
    assert re.search(r"\(command line\)|\.yaml:\d+\)|\(\S+=\S+\)", err), "the place of the mistake is not named"


NUMBERS = tuple(f"hardware.{field.name}" for field in fields(Hardware) if "float" in str(field.type))


@pytest.mark.parametrize("value", [0.0, 1000.0])
def test_what_is_offered_for_a_number_of_the_hardware_works(value: float) -> None:
    """Of every number of a hardware file: a value is fine, or one is offered that is."""
    job, refused = compose(QWEN[1:]), 0

    def problems_of(values: dict[str, float | None]) -> list[Finding]:
        return [each for each in problems(with_values(job, values)) if each.rule != "EST-TOPOLOGY"]

    for path in NUMBERS:
        found = problems_of({path: value})
        refused += bool(found)
        for each in found:
            assert each.fixes, path
            for name, _, offered in (word.partition("=") for fix in each.fixes for word in fix.overrides):
                assert not problems_of({name: json.loads(offered)}), path
    assert refused > 20


def test_what_is_offered_for_negative_numbers_of_the_hardware_works() -> None:
    with pytest.raises(ComposeError) as caught:
        compose([*QWEN[1:], *(f"{path}=-5" for path in NUMBERS)])
    offered = [word for mistake in caught.value.mistakes for word in mistake.fixes]
    assert len(offered) == len(NUMBERS)
    assert not problems(compose([*QWEN[1:], *offered]))


# Sizes and hardware are what an estimate judges: impossible ones are a refused job, with rule, field and place.
IMPOSSIBLE = {
    "unknown hardware": (["hardware=h100_80gb"], "JOB-OPTION", "hardware=h100_80g"),
    "no hardware": (["hardware=null"], "JOB-OPTION", "h100_80g"),
    "negative": (["batch.seq_length=-1"], "JOB-BOUND", "batch.seq_length"),
    "zero": (["model.hidden_size=0"], "JOB-BOUND", "model.hidden_size"),
    "not a number": (["hardware.memory_gib=nan"], "JOB-BOUND", "hardware.memory_gib"),
    "no bandwidth of a domain": (["hardware.domain_gbs=nan"], "JOB-BOUND", "hardware.domain_gbs"),
    "a domain of less than a device": (["hardware.domain_devices=-4"], "JOB-BOUND", "hardware.domain_devices"),
    "oversubscription below 1": (
        ["hardware.spine_oversubscription=0.5"],
        "JOB-BOUND",
        "hardware.spine_oversubscription",
    ),
    "negative price": (["hardware.price=-1"], "JOB-BOUND", "hardware.price"),
    "no nodes": (["cluster.nodes=0"], "JOB-BOUND", "cluster.nodes"),
}


@pytest.mark.parametrize(("args", "rule", "field"), IMPOSSIBLE.values(), ids=list(IMPOSSIBLE))
def test_impossible_sizes_and_hardware_are_refused(args: list[str], rule: str, field: str, launch: Any) -> None:
    code, _, err = launch(*QWEN, *args)
    assert code == 1
    assert f"error {rule}  " in err
    assert field in err
    assert f"({args[0]})" in err


USAGE = {
    "unknown field": (["hardware.memory_gb=80"], "memory_gib"),
    "not a number": (["batch.seq_length=long"], "batch.seq_length"),
    "unknown module": (["recompute.modules=[foo]"], "core_attn"),
    "unknown section": (["hardwear.memory_gib=80"], "hardware"),
    "unknown folder": (["--plot", "/nowhere/at/all.html"], "/nowhere/at"),
    "unknown kind of picture": (["--plot", "picture.gif"], ".svg"),
}


@pytest.mark.parametrize(("args", "shown"), USAGE.values(), ids=list(USAGE))
def test_mistakes_of_the_command_line_say_what_would_work(args: list[str], shown: str, launch: Any) -> None:
    code, _, err = launch(*QWEN, *args)
    assert code == 2
    assert shown in err


def test_without_the_extra_nothing_is_computed(launch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    from launcher.cli import plot

    find = importlib.util.find_spec
    monkeypatch.setattr(plot, "find_spec", lambda name: None if name == "plotly" else find(name))
    code, out, err = launch(*QWEN, "--plot", str(tmp_path / "p.html"))
    assert (code, out) == (1, "")
    assert "pip install 'launch-llm[report]'" in err


@pytest.mark.slow
def test_pictures_and_trace(launch: Any, tmp_path: Path) -> None:
    svg, page, trace = tmp_path / "estimate.svg", tmp_path / "estimate.html", tmp_path / "trace.json"
    assert launch(*QWEN, "--plot", str(svg), "--trace", str(trace))[0] == 0
    assert launch(*QWEN, "--plot", str(page))[0] == 0
    root = ElementTree.fromstring(svg.read_text(encoding="utf-8"))
    texts = {(node.text or "").strip() for node in root.iter() if node.tag.endswith("text")}
    assert {"optimizer", "backward", "stage 0", "stage 1"} <= texts
    assert page.read_text(encoding="utf-8").lstrip().startswith("<!doctype html>")
    assert launch(*QWEN, "--plot", str(svg))[0] == 0, "a picture that launch made is replaced"
    svg.write_text("<svg>mine</svg>", encoding="utf-8")
    assert launch(*QWEN, "--plot", str(svg))[0] == 1
    assert svg.read_text(encoding="utf-8") == "<svg>mine</svg>"
    events = [event for event in json.loads(trace.read_text(encoding="utf-8"))["traceEvents"] if event["ph"] == "X"]
    assert {event["tid"] for event in events} == {0, 1}
    assert all(event["dur"] > 0 for event in events)


def test_png(launch: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "estimate.png"
    assert launch(*QWEN, "--plot", str(picture))[0] == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_one_line() -> None:
    from launcher.compose import compose
    from launcher.estimate import one_line

    line = one_line(compose(QWEN[1:]))
    assert line is not None
    assert line.startswith("fits: ")
    assert "of 80 GiB on stage" in line
    assert line.endswith("s/step")
    assert one_line(compose(["+recipe=qwen3_moe"])) is None


def test_refusal_only_beyond_the_estimates_own_error() -> None:
    from launcher.compose import compose
    from launcher.estimate import refusal

    assert refusal(compose(QWEN[1:])) is None
    found = refusal(compose([*QWEN[1:], "hardware.memory_gib=16"]))
    assert found is not None
    assert found.rule == "EST-FITS"
    assert "estimate.enforce=false" in found.message
    assert refusal(compose([*QWEN[1:], "hardware.memory_gib=16", "estimate.enforce=false"])) is None


DENSE_EP = ["+recipe=qwen2_5_7b_pretrain", "backend=mindformers", "hardware=ascend_910b", "cluster.nodes=64"]
DENSE_EP += ["batch.global_batch_size=1024", "parallel.ep=2"]
REWARD = [
    "+recipe=qwen3_moe_rm_lora",
    "backend=mindformers",
    "hardware=ascend_910c",
    "parallel.schedule=dualpipev",
    "backend.args.center_rewards_coefficient=null",
]
FP8 = ["+recipe=llama3_70b_fp8", "hardware=ascend_910b"]
OFFERED = {
    "a dense model": (["estimate", *DENSE_EP], "MOE-EP-DENSE"),
    "a dense model without a backend": (
        ["estimate", "+recipe=qwen3_8b", "hardware=h100_80g", "parallel.ep=2"],
        "MOE-EP-DENSE",
    ),
    "a schedule of several stages": (["estimate", *REWARD, "parallel.pp=1"], "EST-SCHEDULE"),
    "a format that a device lacks": (["estimate", *FP8], "FP8-HARDWARE"),
    "the same, searched": (["search", *FP8], "FP8-HARDWARE"),
}


@pytest.mark.parametrize("name", OFFERED)
def test_what_is_offered_leaves_the_estimate_without_the_error(name: str, launch: Any) -> None:
    args, rule = OFFERED[name]
    code, out, _ = launch(*args, "--json")
    assert code == 1
    finding = next(each for each in json.loads(out)["findings"] if each["rule"] == rule)
    assert "None" not in finding["message"]
    assert finding["fix"]
    for fix in finding["fix"]:
        _, out, _ = launch("estimate", *args[1:], *fix.split(), "--json")
        assert rule not in out


def test_what_a_backend_ignores_and_check_warns_of_is_no_error(launch: Any) -> None:
    code, legacy, _ = launch("estimate", *DENSE_EP, "model.legacy=true", "--json")
    assert code == 0
    assert json.loads(legacy)["fits"]
