"""`launch import strategy.json model.json system.json`: SimuMax's input files, as a user gives them."""

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from launcher.api import compose
from launcher.cli import main
from launcher.estimate.estimate import CannotEstimate, estimate
from launcher.importing.simumax.files import describe, job_text, simumax_files
from launcher.importing.simumax.table import MODEL, STRATEGY
from launcher.job import fields, value_at

# Files of our own in SimuMax's format (the fields are those of its 1.2).
STRATEGY_FILE: dict[str, Any] = {
    "seq_len": 2048,
    "micro_batch_size": 1,
    "micro_batch_num": 8,
    "dtype": "bf16",
    "world_size": 16,
    "tp_size": 2,
    "pp_size": 2,
    "enable_sequence_parallel": True,
    "zero_state": 1,
    "use_flash_sdp": True,
    "mem_factor": 0.9,
}
DENSE: dict[str, Any] = {
    "model_type": "dense",
    "model_name": "small dense",
    "hidden_size": 2048,
    "head_num": 16,
    "kv_head_num": 8,
    "head_size": 128,
    "intermediate_size": 5632,
    "layer_num": 8,
    "vocab_size": 32001,
    "use_swiglu": True,
}
EXPERTS = DENSE | {
    "model_type": "moe",
    "model_name": "small_moe",
    "expert_num": 16,
    "topk": 4,
    "moe_ffn_hidden_size": 1024,
    "moe_shared_expert_intermediate_size": 1024,
    "dense_layers": 2,
}
LATENT = EXPERTS | {
    "attention_type": "mla",
    "kv_head_num": 16,
    "v_head_dim": 128,
    "qk_head_dim": 128,
    "qk_pos_emb_head_dim": 64,
    "q_lora_rank": 512,
    "kv_lora_rank": 256,
}


def _network(gbps: float) -> dict[str, Any]:
    kinds = {"all_reduce": (2, -1), "all_gather": (1, -1), "reduce_scatter": (1, -1), "p2p": (1, 0), "all2all": (1, -1)}
    return {
        "processor_usage": 0.0,
        "bandwidth": {"gbps": gbps, "efficient_factor": 0.8, "latency_us": 10},
        "op": {name: {"scale": scale, "offset": offset} for name, (scale, offset) in kinds.items()},
    }


def _shapes(stage: str, peak: float = 0.7, half: float = 5e9) -> dict[str, float]:
    """Return efficiencies of products that reach half of `peak` at `half` FLOP."""
    table = {}
    for n in (512, 2048, 8192):
        flops = 2 * 1 * 4096 * 4096 * n
        accumulate = stage == "weight"
        table[f"b=1, m=4096, k=4096, n={n}, layout=TN, accumulate={accumulate}, out_dtype=bf16"] = (
            peak * flops / (flops + half)
        )
    return table


SYSTEM_FILE: dict[str, Any] = {
    "sys_name": "made_up",
    "num_per_node": 8,
    "accelerator": {
        "backend": "cuda",
        "mem_gbs": 64,
        "mode": "roofline",
        "op": {
            "default": {"tflops": 400, "efficient_factor": 0.6},
            "matmul": {
                "tflops": 400,
                "efficient_factor": 0.5,
                "accurate_efficient_factor": _shapes("forward") | _shapes("weight", 0.6),
            },
            "group_matmul": {"tflops": 400, "efficient_factor": 0.4},
            "sdp_fwd": {"tflops": 400, "efficient_factor": 0.9},
            "sdp_bwd": {"tflops": 400, "efficient_factor": 0.8},
            "fp8_matmul": {"tflops": 800, "efficient_factor": 0},
        },
        "bandwidth": {
            "default": {"gbps": 1000, "efficient_factor": 0.8, "latency_us": 20},
            "ce": {"gbps": 1000, "efficient_factor": 0.6, "latency_us": 20},
        },
    },
    "networks": {
        "intra_with_pcie": False,
        "low_intra_node": _network(50),
        "high_intra_node": _network(100),
        "inter_node": _network(200),
    },
}


def write(folder: Path, **trees: Mapping[str, Any] | str) -> list[str]:
    """Write files named after their kind; a text is written as it is."""
    for kind, tree in trees.items():
        (folder / f"{kind}.json").write_text(tree if isinstance(tree, str) else json.dumps(tree), encoding="utf-8")
    return [str(folder / f"{kind}.json") for kind in trees]


def answer(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, Any]:
    assert main(["import", *words, "--json"]) == code
    tree = json.loads(capsys.readouterr().out)
    assert isinstance(tree, dict)
    return tree


def test_the_triple_becomes_a_job_that_estimate_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = write(tmp_path, system=SYSTEM_FILE, model=EXPERTS, strategy=STRATEGY_FILE | {"ep_size": 4})
    job_file = str(tmp_path / "job.yaml")
    assert main(["import", *files, "-o", job_file]) == 0
    text = capsys.readouterr().out
    assert "micro_batch_num" in text
    assert "next: launch estimate +job=" in text
    job = compose([f"+job={job_file}"])
    expected = {
        "parallel.tp": 2,
        "parallel.pp": 2,
        "parallel.ep": 4,
        "parallel.etp": 1,
        "parallel.dp": 4,
        "parallel.sequence_parallel": True,
        "parallel.distributed_optimizer": True,
        "batch.global_batch_size": 32,
        "cluster.nodes": 2,
        "model.num_experts": 16,
        "model.first_k_dense_replace": 2,
        "model.vocab_size": 32001,
        "estimate.mem_factor": 0.9,
        "hardware.memory_gib": 64,
        "hardware.bf16_tflops": 400,
        "backend.name": "megatron_lm",
        "name": "small_moe",
    }
    assert {path: value_at(job, path) for path in expected} == expected
    # GiB/s of one direction in SimuMax; GB/s of both here. Of the network: of a node there, of a device here.
    assert job.hardware.intra_node_gbs == pytest.approx(2 * 100 * 1.073742, rel=1e-5)
    assert job.hardware.inter_node_gbs == pytest.approx(200 * 1.073742 / 8, rel=1e-5)
    assert job.hardware.memory_bandwidth_gbs == pytest.approx(1073.742, rel=1e-5)
    # The table of shapes is fitted: what it was made of comes back.
    assert job.hardware.matmul_efficiency == pytest.approx(0.7, rel=1e-4)
    assert job.hardware.small_matmul_gflop == pytest.approx(5.0, rel=1e-4)
    assert job.hardware.weight_gradient_efficiency == pytest.approx(0.6, rel=0.03)
    assert main(["estimate", f"+job={job_file}", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["time"]["step_s"] > 0
    assert found["memory"]["capacity"] == 64 * 2**30


def test_a_system_alone_becomes_a_hardware_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file,) = write(tmp_path, system=SYSTEM_FILE)
    hardware = str(tmp_path / "hardware.yaml")
    assert main(["import", file, "-o", hardware]) == 0
    assert f"use it as hardware={hardware}" in capsys.readouterr().out
    job = compose(["+recipe=qwen3_8b", "backend=megatron_lm", f"hardware={hardware}"])
    assert (job.hardware.name, job.hardware.attention_efficiency) == ("made_up", 0.9)


def test_without_a_system_the_job_takes_a_device_of_ours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = write(tmp_path, strategy=STRATEGY_FILE, model=DENSE)
    assert main(["import", *files, "-o", str(tmp_path / "job.yaml")]) == 0
    assert "hardware=h100_80g" in capsys.readouterr().out
    assert main(["estimate", f"+job={tmp_path / 'job.yaml'}", "hardware=h100_80g", "--json"]) == 0


_DENSE_CHOICES: dict[str, list[Any]] = {
    "tp_size": [1, 2, 4],
    "pp_size": [1, 2, 4],
    "micro_batch_size": [1, 2],
    "zero_state": [0, 1, 2, 3],
    "enable_sequence_parallel": [True, False],
    "grad_reduce_in_bf16": [True, False],
    "cross_entropy_loss_fusion": [True, False],
    "enable_recompute": [True, False],
    "recompute_granularity": [None, "full_block", "attn_only", "mlp_only", "sdp_only", "selective_recompute"],
    "recompute_layer_num": [0, 1, 2, 64],
    "attn_recompute": [True, False],
    "mlp_recompute": [True, False],
    "mlp_rms_recompute": [True, False],
    "recompute_variance": [True, False],
    "dispatch_probs": [True, False],
    "tp_net": ["auto", "high_intra_node"],
    "pp_comm_async": [True, False],
    "te_version": [None, "2.11.0"],
}


@pytest.mark.slow
def test_every_field_is_told_and_every_triple_answered(tmp_path: Path) -> None:
    """Random strategies with every model: each file's fields all have a row, and the job composes and is estimated."""
    choose = random.Random(17)
    statuses: set[str] = set()
    for number in range(24):
        strategy = STRATEGY_FILE | {name: choose.choice(values) for name, values in _DENSE_CHOICES.items()}
        model = (DENSE, EXPERTS, LATENT)[number % 3]
        if model is not DENSE:
            strategy |= {"ep_size": choose.choice([1, 2, 4]), "etp_size": 1}
        if model is LATENT:
            strategy["tp_size"] = 1  # as SimuMax needs it
        files = write(tmp_path, strategy=strategy, model=model, system=SYSTEM_FILE)
        read = simumax_files(files)
        assert read is not None
        described = describe(read)
        rows = {(row.file, row.field) for row in described.rows if row.given}
        assert rows >= {("strategy", name) for name in strategy} | {("model", name) for name in model}
        assert all(row.fields or row.note for row in described.rows)
        assert {path for row in described.rows for path in row.fields} <= fields().keys()
        assert not [row for row in described.rows if row.status == "unknown"]
        statuses |= {row.status for row in described.rows}
        job_file = tmp_path / "job.yaml"
        job_file.write_text(job_text(described), encoding="utf-8")
        job = compose([f"+job={job_file}"])
        try:
            found = estimate(job, changes=False)
        except CannotEstimate as error:
            pytest.fail(f"{strategy}: {[str(each) for each in error.findings]}")
        assert found.time is not None
        assert found.time.step_s > 0
    assert statuses == {"mapped", "nearest", "implied", "dropped"}


RECOMPUTATIONS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "whole layers": (
        DENSE,
        {"recompute_granularity": "full_block", "recompute_layer_num": 3},
        {"granularity": "full", "method": "block", "num_layers": 3},
    ),
    "more layers than a stage has": (
        DENSE,
        {"recompute_granularity": "full_block", "recompute_layer_num": 61},
        {"granularity": "full", "num_layers": 4},
    ),
    "switched off": (
        DENSE,
        {"recompute_granularity": "full_block", "recompute_layer_num": 3, "enable_recompute": False},
        {"granularity": None, "modules": ()},
    ),
    "only attention": (
        DENSE,
        {"recompute_granularity": "sdp_only", "recompute_layer_num": 4},
        {"granularity": "selective", "modules": ("core_attn",)},
    ),
    "parts of Megatron-core": (
        EXPERTS,
        {
            "recompute_granularity": "selective_recompute",
            "recompute_layer_num": 4,
            "megatron_recompute": True,
            "megatron_recompute_modules": ["layernorm", "moe_act"],
        },
        {"granularity": "selective", "modules": ("layernorm", "moe_act")},
    ),
}


@pytest.mark.parametrize("name", RECOMPUTATIONS)
def test_recomputation(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, strategy, expected = RECOMPUTATIONS[name]
    tree = answer(capsys, *write(tmp_path, strategy=STRATEGY_FILE | strategy, model=model))
    made = tree["job"]["recompute"]
    assert {key: tuple(made[key]) if isinstance(made[key], list) else made[key] for key in expected} == expected


REFUSED: dict[str, tuple[dict[str, Any], int, tuple[str, ...]]] = {
    "no model": (
        {"strategy": STRATEGY_FILE, "system": SYSTEM_FILE},
        1,
        ("model file is missing", "launch import strategy.json MODEL.json system.json"),
    ),
    "no strategy": ({"model": DENSE}, 1, ("strategy file is missing", "STRATEGY.json model.json")),
    "two strategies": ({"strategy": STRATEGY_FILE, "other": STRATEGY_FILE}, 1, ("2 files are a strategy",)),
    "another program's file": ({"strategy": STRATEGY_FILE, "other": {"a": 1}}, 1, ("not a strategy, model or system",)),
    "broken": ({"strategy": STRATEGY_FILE, "model": "{"}, 1, ("model.json", "is not JSON")),
    "wrong type": (
        {"strategy": STRATEGY_FILE | {"tp_size": "two", "zero_state": 4}, "model": DENSE | {"layer_num": None}},
        1,
        ("field tp_size is two: must be a whole number", "zero_state: 0", "field layer_num is missing"),
    ),
    "not a number": (
        {"strategy": json.dumps(STRATEGY_FILE | {"mem_factor": float("nan")}), "model": DENSE},
        1,
        ("field mem_factor is nan: must be a number", "mem_factor: 0.94"),
    ),
    "devices that do not divide": (
        {"strategy": STRATEGY_FILE | {"world_size": 10}, "model": DENSE},
        1,
        ("world_size is 10: not divisible by tp_size 2 x pp_size 2 x cp_size 1 = 4", "world_size: 8"),
    ),
    "experts of a dense model": (
        {"strategy": STRATEGY_FILE | {"ep_size": 4}, "model": DENSE},
        1,
        ("ep_size is 4: does not divide expert_num 1", "ep_size: 1"),
    ),
    "a system without links": (
        {"system": SYSTEM_FILE | {"networks": {"inter_node": _network(200)}}},
        1,
        ("networks.high_intra_node.bandwidth is missing",),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_field_reason_and_what_works(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trees, code, texts = REFUSED[name]
    output = tmp_path / "job.yaml"
    assert main(["import", *write(tmp_path, **trees), "-o", str(output)]) == code
    said = capsys.readouterr().err
    assert [text for text in texts if text not in said.replace(f"{tmp_path}/", "")] == []
    assert not output.exists()


def test_an_unknown_field_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = write(tmp_path, strategy=STRATEGY_FILE | {"tp_sizes": 4}, model=DENSE, system=SYSTEM_FILE | {"extra": 1})
    tree = answer(capsys, *files)
    assert {each["flag"] for each in tree["unmapped"]} >= {"strategy.tp_sizes", "system.extra"}
    assert any("similar: tp_size" in text for text in tree["warnings"])
    assert main(["import", *files, "--to", "megatron"]) == 2
    assert "--to: applies to scripts" in capsys.readouterr().err


def test_the_tables_name_fields_of_a_job() -> None:
    for row in (*STRATEGY.values(), *MODEL.values()):
        assert {row.to, *row.computed} - {""} <= fields().keys()
        assert bool(row.to or row.computed) != bool(row.reason)
