"""Each common rule: the smallest job that breaks it and the nearest one that passes."""

import dataclasses

import pytest

from launcher.job import Origin, build, derive, fields
from launcher.mapping.backend import get_backend
from launcher.mapping.engine import translate
from launcher.pipeline import judge as judge_for_backend
from launcher.plan.executor import option_rules
from launcher.rules.engine import load, run
from launcher.rules.registry import RULES, RuleContext
from tests.backends.rule_pairs import check_pairs
from tests.conftest import make_job

load(option_rules())

# id: (broken, passing) as changes of a small legal job; `moe` marks changes of the MoE variant.
PAIRS = {
    "REHEARSE-LEFT-OUT": (
        {"precision": {"fp8_format": "hybrid"}, "rehearse": {"leave_out": ["precision.fp8_format"]}},
        {"rehearse": {"leave_out": ["precision.fp8_format"]}},
    ),
    "K8S-FIELD": (
        {"cluster": {"executor": "kubernetes", "container": "trainer:1", "namespace": "My Team"}},
        {"cluster": {"executor": "kubernetes", "container": "trainer:1", "namespace": "my-team"}},
    ),
    "CLUSTER-FIELD": (
        {"cluster": {"executor": "ssh", "hosts": ("a",), "partition": "gpu"}},
        {"cluster": {"executor": "slurm", "partition": "gpu"}},
    ),
    "CLUSTER-CONTAINER": (
        {"cluster": {"executor": "ssh", "hosts": ("a",), "container": "trainer:1"}},
        {"cluster": {"executor": "slurm", "container": "trainer:1"}},
    ),
    "CLUSTER-EXECUTOR": ({"cluster": {"executor": "locl"}}, {"cluster": {"executor": "local"}}),
    "CLUSTER-OPTION": ({"cluster": {"options": {"pool": "a"}}}, {"cluster": {"options": {}}}),
    "CLUSTER-MOUNT": (
        {"cluster": {"executor": "slurm", "container": "trainer:1", "container_mounts": ("data",)}},
        {"cluster": {"executor": "slurm", "container": "trainer:1", "container_mounts": ("/data:/data:ro",)}},
    ),
    "WORD-NAME": ({"name": "../../x"}, {"name": "qwen3 8b-x.1"}),
    "WORD-EMPTY": ({"output_dir": ""}, {"output_dir": "out"}),
    "WORD-SLURM": (
        {"cluster": {"executor": "slurm", "time_limit": "banana"}},
        {"cluster": {"executor": "slurm", "time_limit": "2-12:00:00"}},
    ),
    "WORD-IMAGE": (
        {"cluster": {"executor": "slurm", "container": "my image"}},
        {"cluster": {"executor": "slurm", "container": "registry/image:1"}},
    ),
    "WORD-WANDB": (
        {"logging": {"wandb_project": "team/run"}},
        {"logging": {"wandb_project": "team-run"}, "backend": {"name": None, "env": {"WANDB_MODE": "offline"}}},
    ),
    "TEXT-CHARACTERS": (
        {"cluster": {"executor": "slurm", "partition": "a\nb"}},
        {"cluster": {"executor": "slurm", "partition": "a"}},
    ),
    "ENV-NAME": ({"backend": {"name": None, "env": {"A-B": "1"}}}, {"backend": {"name": None, "env": {"A_B": "1"}}}),
    "PATH-DASH": ({"output_dir": "-x"}, {"output_dir": "./-x"}),
    "SSH-HOST": (
        {"cluster": {"executor": "ssh", "hosts": ("-x",)}},
        {"cluster": {"executor": "ssh", "hosts": ("me@x",)}},
    ),
    "SSH-OPTION": (
        {"cluster": {"executor": "ssh", "ssh_options": ("-p", "22", "x")}},
        {"cluster": {"executor": "ssh", "ssh_options": ("-p", "22")}},
    ),
    "SBATCH-OPTION": (
        {"cluster": {"executor": "slurm", "sbatch_options": ("--switches 1",)}},
        {"cluster": {"executor": "slurm", "sbatch_options": ("--switches=1",)}},
    ),
    "REQ-MODEL": ({"model": {"hidden_size": None}}, {}),
    "REQ-BATCH": ({"batch": {"seq_length": None}}, {}),
    "REQ-LR": ({"optimizer": {"lr": None}}, {}),
    "REQ-LENGTH": ({"schedule": {"train_iters": None}}, {"schedule": {"train_iters": None, "epochs": 1}}),
    "PAR-WORLD": ({"parallel": {"pp": 3}}, {"parallel": {"pp": 4}}),
    "PAR-TP-HEADS": ({"model": {"num_attention_heads": 6}, "parallel": {"tp": 4}}, {"parallel": {"tp": 4}}),
    "PAR-TP-KV-HEADS": ({"model": {"num_key_value_heads": 3}, "parallel": {"tp": 2}}, {"parallel": {"tp": 8}}),
    "PAR-TP-FFN": ({"model": {"intermediate_size": 511}, "parallel": {"tp": 2}}, {"parallel": {"tp": 2}}),
    "PAR-SP-TP": (
        {"parallel": {"sequence_parallel": True}},
        {"parallel": {"sequence_parallel": True, "tp": 2}},
    ),
    "PAR-VPP-PP": ({"parallel": {"vpp": 2}}, {"parallel": {"vpp": 2, "pp": 2}}),
    "PAR-UNEVEN-PP": ({"parallel": {"first_stage_layers": 4}}, {"parallel": {"first_stage_layers": 4, "pp": 2}}),
    "PAR-PP-LAYERS": ({"model": {"num_hidden_layers": 9}, "parallel": {"pp": 2}}, {"parallel": {"pp": 8}}),
    "PAR-CP-SEQ": (
        {"batch": {"seq_length": 126}, "parallel": {"cp": 2}},
        {"batch": {"seq_length": 128}, "parallel": {"cp": 2}},
    ),
    "PAR-SP-SEQ": (
        {"batch": {"seq_length": 127}, "parallel": {"tp": 2, "sequence_parallel": True}},
        {"batch": {"seq_length": 126}, "parallel": {"tp": 2, "sequence_parallel": True}},
    ),
    "MOE-EP-DENSE": ({"parallel": {"ep": 2}}, {}),
    "BATCH-GLOBAL": ({"batch": {"global_batch_size": 12}}, {"batch": {"global_batch_size": 24}}),
    "BATCH-VPP": (
        {"parallel": {"pp": 4, "vpp": 2}, "batch": {"global_batch_size": 10}},
        {"parallel": {"pp": 4, "vpp": 2}, "batch": {"global_batch_size": 16}},
    ),
    "SEQ-POSITIONS": ({"batch": {"seq_length": 8192}}, {"batch": {"seq_length": 4096}}),
    "LR-ORDER": ({"optimizer": {"min_lr": 1.0}}, {"optimizer": {"min_lr": 1e-3}}),
    "LR-WARMUP-TWICE": (
        {"schedule": {"lr_warmup_iters": 5, "lr_warmup_fraction": 0.1}},
        {"schedule": {"lr_warmup_iters": 5}},
    ),
    "LR-WARMUP-LENGTH": ({"schedule": {"lr_warmup_iters": 100}}, {"schedule": {"lr_warmup_iters": 99}}),
    "RC-FULL-METHOD": (
        {"recompute": {"granularity": "full", "num_layers": 1}},
        {"recompute": {"granularity": "full", "num_layers": 1, "method": "block"}},
    ),
    "RC-FULL-LAYERS": (
        {"recompute": {"granularity": "full", "num_layers": 9, "method": "block"}},
        {"recompute": {"granularity": "full", "num_layers": 8, "method": "block"}},
    ),
    "RC-FULL-CHUNKS": (
        {"recompute": {"granularity": "full", "num_layers": 2, "method": "block", "layers_per_chunk": [2, 1]}},
        {"recompute": {"granularity": "full", "num_layers": 2, "method": "block", "layers_per_chunk": [2]}},
    ),
    "RC-PART-CHUNKS": (
        {"recompute": {"granularity": "selective", "selective_layers_per_chunk": [2, 1]}},
        {"recompute": {"granularity": "selective", "selective_layers_per_chunk": [2]}},
    ),
    "RC-SELECTIVE": (
        {"recompute": {"granularity": "selective", "method": "block"}},
        {"recompute": {"granularity": "selective"}},
    ),
    "RC-NO-GRANULARITY": (
        {"recompute": {"modules": ["core_attn"]}},
        {"recompute": {"modules": ["core_attn"], "granularity": "selective"}},
    ),
    "DATA-MISSING": ({"data": {"format": "text"}}, {"data": {"format": "text", "paths": ["a"]}}),
    "NET-MASTER": ({"cluster": {"nodes": 2}}, {"cluster": {"nodes": 2, "master_addr": "10.0.0.1"}}),
    "ENV-SECRET": ({"backend": {"env": {"HF_TOKEN": "${HF_TOKEN}"}}}, {"backend": {"env": {"HF_HOME": "/hf"}}}),
    "SECRET-PLACE": ({"cluster": {"account": "<redacted>"}}, {"cluster": {"account": "team"}}),
    "CKPT-INTERVAL": ({"checkpoint": {"save_interval": 101}}, {"checkpoint": {"save_interval": 100}}),
    "CKPT-NONE": (
        {"data": {"format": "text", "paths": ["a"]}},
        {"data": {"format": "text", "paths": ["a"]}, "checkpoint": {"save_interval": 5}},
    ),
    "CKPT-RESUME-OR-START": (
        {"checkpoint": {"load": "x"}, "model": {"pretrained": True}},
        {"checkpoint": {"load": "x", "finetune": True}, "model": {"pretrained": True}},
    ),
    "CKPT-NO-INTERVAL": ({"checkpoint": {"save": "x"}}, {"checkpoint": {"save": "x", "save_interval": 5}}),
    "LORA-COMPLETE": ({"lora": {"alpha": 16}}, {"lora": {"alpha": 16, "rank": 8}}),
    "MLA-SIZES": (
        {"model": {"kv_lora_rank": 32}},
        {"model": {"kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16}},
    ),
    "FP8-HARDWARE": (
        {"precision": {"fp8_format": "hybrid"}, "hardware": {"name": "old", "bf16_tflops": 312}},
        {"precision": {"fp8_format": "hybrid"}, "hardware": {"name": "new", "bf16_tflops": 989, "fp8_tflops": 1979}},
    ),
    "FP4-HARDWARE": (
        {"precision": {"fp4_format": "e2m1"}, "hardware": {"name": "old", "bf16_tflops": 989, "fp8_tflops": 1979}},
        {"precision": {"fp4_format": "e2m1"}, "hardware": {"name": "new", "bf16_tflops": 2250, "nvfp4_tflops": 9000}},
    ),
}
# A dense model has the expert ranks too, once it is given some.
DENSE_WITH_EXPERT_RANKS = ("PAR-EXPERT-WORLD", False, {"parallel": {"ep": 16}}, {"parallel": {"ep": 8}})
MOE_PAIRS = {
    "PAR-EXPERT-WORLD": ({"parallel": {"ep": 16}}, {"parallel": {"ep": 8}}),
    "MOE-EP-EXPERTS": ({"model": {"num_experts": 6}, "parallel": {"ep": 4}}, {"parallel": {"ep": 4}}),
    "MOE-TP-SP": ({"parallel": {"tp": 2}}, {"parallel": {"tp": 2, "sequence_parallel": True}}),
    "MOE-TOPK": ({"model": {"num_experts_per_tok": 9}}, {"model": {"num_experts_per_tok": 8}}),
    "MOE-BALANCE": ({}, {"moe": {"aux_loss_coeff": 1e-3}}),
    "MOE-GROUPS": (
        {"model": {"n_group": 3, "topk_group": 2}},
        {"model": {"n_group": 4, "topk_group": 2}},
    ),
    "MOE-BIAS-SIGMOID": (
        {"model": {"router_expert_bias": True}},
        {"model": {"router_expert_bias": True, "scoring_func": "sigmoid"}},
    ),
}
CASES = [(id_, False, *pair) for id_, pair in PAIRS.items()] + [(id_, True, *pair) for id_, pair in MOE_PAIRS.items()]
CASES.append(DENSE_WITH_EXPERT_RANKS)


def broken_rules(tree, *, moe):
    return {finding.rule for finding in run(RuleContext(job=make_job(tree, moe=moe)))}


@pytest.mark.parametrize(("id_", "moe", "broken", "passing"), CASES, ids=[case[0] for case in CASES])
def test_rule_finds_the_broken_job_and_passes_the_other(id_, moe, broken, passing):
    assert id_ in broken_rules(broken, moe=moe)
    assert id_ not in broken_rules(passing, moe=moe)


def test_a_small_legal_job_has_no_findings():
    assert not run(RuleContext(job=make_job()))
    assert not run(RuleContext(job=make_job({"moe": {"aux_loss_coeff": 1e-3}}, moe=True)))


def test_every_common_rule_has_a_pair():
    common = {rule.id for rule in RULES.values() if not rule.backends and not rule.id.startswith("SENSE-")}
    elsewhere = {"REQ-BACKEND", "PAR-DP", "ARG-DASH", "ARG-BOUND"}
    check_pairs(common, {case[0] for case in CASES} | elsewhere, "PAIRS of tests/rules/test_common.py")


def test_every_rule_has_a_source_and_an_explanation():
    for rule in RULES.values():
        assert rule.source, rule.id
        assert rule.doc.endswith("."), rule.id


def test_a_given_data_parallel_size_must_agree():
    job = make_job()
    wrong, _ = build({}, {})
    wrong = dataclasses.replace(job, parallel=dataclasses.replace(job.parallel, dp=3))
    wrong = dataclasses.replace(wrong, origins={"parallel.dp": Origin(kind="override")})
    assert "PAR-DP" in {finding.rule for finding in run(RuleContext(job=derive(wrong)))}


@pytest.mark.parametrize(
    ("rule", "path", "backend", "changes"),
    [
        ("PAR-WORLD", "parallel.dp", "mindformers", {"parallel": {"tp": 3}}),
        ("PAR-PP-LAYERS", "parallel.pp", "mindformers", {"parallel": {"pp": 3}, "cluster": {"devices_per_node": 3}}),
        ("PAR-PP-LAYERS", "parallel.vpp", "mindspeed", {"parallel": {"pp": 2, "vpp": 3}}),
        ("SEQ-POSITIONS", "model.max_position_embeddings", "megatron_lm", {"batch": {"seq_length": 99999}}),
    ],
)
def test_what_a_rule_covers_is_not_reported_by_the_translation_too(rule, path, backend, changes):
    job, target = make_job({"backend": {"name": backend}, **changes}), get_backend(backend)
    untranslated = translate(job, target, target.versions[0]).findings
    assert path in {each for finding in untranslated for each in finding.fields}
    findings = judge_for_backend(job).findings
    assert rule in {finding.rule for finding in findings}
    assert not [f for f in findings if f.rule == "MAP-UNSUPPORTED" and path in f.fields]
    assert path in RULES[rule].covers


def test_covered_fields_exist():
    assert {path for rule in RULES.values() for path in rule.covers} <= set(fields())


def test_a_backend_is_needed():
    assert "REQ-BACKEND" in {finding.rule for finding in run(RuleContext(job=make_job(backend=None)))}


def test_errors_come_first_and_the_order_is_stable():
    job = make_job({"parallel": {"tp": 3}, "cluster": {"nodes": 2}, "data": {"format": "text"}})
    findings = run(RuleContext(job=job))
    assert [f.severity for f in findings] == sorted(
        (f.severity for f in findings), key=("error", "warning", "change").index
    )
    assert findings == run(RuleContext(job=job))


def test_a_disabled_rule_is_silent_but_named():
    rules = broken_rules({"parallel": {"pp": 3}, "rules": {"disable": ["PAR-WORLD"]}}, moe=False)
    assert "PAR-WORLD" not in rules
    assert "RULES-DISABLED" in rules


@pytest.mark.parametrize(("warmup", "broken"), [(800, True), (799, False)])
def test_a_warm_up_in_sequences_ends_before_the_decay(warmup, broken):
    schedule = {"train_iters": None, "train_samples": 1600, "lr_decay_samples": 800, "lr_warmup_samples": warmup}
    assert ("LR-WARMUP-LENGTH" in broken_rules({"schedule": schedule}, moe=False)) is broken
