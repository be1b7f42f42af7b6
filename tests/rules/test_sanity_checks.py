"""Each common-sense rule: the smallest job that breaks it and the nearest one that passes."""

import dataclasses

import pytest

from launcher.compose import compose
from launcher.job import Origin
from launcher.pipeline import judge
from launcher.plan.executor import option_rules
from launcher.rules.engine import load, run
from launcher.rules.registry import RULES, RuleContext
from tests.backends.rule_pairs import check_pairs
from tests.conftest import MOE_MODEL, make_job

load(option_rules())

_TUNED = {"task": {"type": "sft"}, "model": {"path": "/models/a", "pretrained": True}}
_SCALED = {"type": "yarn", "original_max_position_embeddings": 1024, "factor": 2.0}
_LATENT = {"kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16}
_BLOCK = {"granularity": "full", "method": "block"}
_NODES = {"nodes": 2, "master_addr": "node0"}

# id: (broken, passing) as changes of a small legal job.
PAIRS = {
    "SENSE-LAYOUT": (
        {"parallel": {"pp": 2, "layout": "Et*4|(t)*3L"}},
        {"parallel": {"pp": 2, "layout": "Et*4|(tt)*2,L"}},
    ),
    "SENSE-SAMPLES": (
        {"schedule": {"train_iters": None, "train_samples": 15}},
        {"schedule": {"train_iters": None, "train_samples": 16}},
    ),
    "SENSE-SAMPLES-REST": (
        {"schedule": {"train_iters": None, "train_samples": 40}},
        {"schedule": {"train_iters": None, "train_samples": 48}},
    ),
    "SENSE-LENGTH": ({"schedule": {"epochs": 1}}, {}),
    "SENSE-VOCAB": ({"tokenizer": {"padded_vocab_size": 511}}, {"tokenizer": {"padded_vocab_size": 512}}),
    "SENSE-HEADS": ({"model": {"num_key_value_heads": 3}}, {"model": {"num_key_value_heads": 8}}),
    "SENSE-SHARES": ({"optimizer": {"adam_beta2": 1.0}}, {"optimizer": {"adam_beta2": 0.999}}),
    "SENSE-ROPE": (
        {"model": {"rope_scaling": _SCALED}, "batch": {"seq_length": 2049}},
        {"model": {"rope_scaling": _SCALED}, "batch": {"seq_length": 2048}},
    ),
    "SENSE-ROPE-TYPE": (
        {"model": {"rope_scaling": {"factor": 2.0}}},
        {"model": {"rope_scaling": {"type": "linear", "factor": 2.0}}},
    ),
    "SENSE-WEIGHTS": (
        {"model": {"path": "/models/a", "overridden": ["hidden_size"]}},
        {"model": {"path": "/models/a", "overridden": ["hidden_size"], "pretrained": False}},
    ),
    "SENSE-CONFIG": (
        {"model": {"path": "/models/a", "overridden": ["num_hidden_layers"]}},
        {"model": {"path": "/models/a", "overridden": ["initializer_range"]}},
    ),
    "SENSE-MODEL-REPLACED": (
        {"model": {"path": "/models/a"}, "replaced": {"model.model_type": "qwen3_moe in conf/model/a.yaml:4"}},
        {"model": {"path": "/models/a"}, "replaced": {"model.vocab_size": "512 in conf/model/a.yaml:5"}},
    ),
    "SENSE-LR-HIGH": ({**_TUNED, "optimizer": {"lr": 2e-3}}, {**_TUNED, "optimizer": {"lr": 1e-3}}),
    "SENSE-LR-ZERO": ({"optimizer": {"lr": 0.0}}, {"optimizer": {"lr": 1e-9}}),
    "SENSE-WSD": (
        {"schedule": {"lr_wsd_decay_iters": 5}},
        {"schedule": {"lr_wsd_decay_iters": 5, "lr_decay_style": "WSD"}},
    ),
    "SENSE-STREAM-EPOCHS": (
        {"data": {"streaming": True}, "schedule": {"train_iters": None, "epochs": 1}},
        {"data": {"streaming": True}},
    ),
    "SENSE-EVAL-DATA": (
        {"data": {"format": "text", "paths": ["a"]}, "evaluation": {"interval": 10}},
        {"data": {"format": "text", "paths": ["a"], "validation_paths": ["b"]}, "evaluation": {"interval": 10}},
    ),
    "SENSE-EVAL-INTERVAL": ({"evaluation": {"interval": 101}}, {"evaluation": {"interval": 100}}),
    "SENSE-LOSS-SCALE": (
        {"precision": {"loss_scale": 128}},
        {"precision": {"loss_scale": 128, "dtype": "fp16"}},
    ),
    "SENSE-TASK": ({"task": {"beta": 0.1}}, {"task": {"beta": 0.1, "type": "dpo"}}),
    "SENSE-DENSE-MOE": (
        {"moe": {"grouped_gemm": True}},
        {"moe": {"grouped_gemm": True}, "model": MOE_MODEL},
    ),
    "SENSE-PORT": ({"cluster": {"master_port": 65536}}, {"cluster": {"master_port": 65535}}),
    "SENSE-ADDRESS": ({"cluster": {"master_addr": "node0:29500"}}, {"cluster": {"master_addr": "fe80::1"}}),
    "SENSE-LOCAL-PATH": (
        {"cluster": _NODES, "checkpoint": {"save": "/tmp/out", "save_interval": 5}},
        {"cluster": _NODES, "checkpoint": {"save": "/tmpfs/out", "save_interval": 5}},
    ),
    "SENSE-LORA-TARGETS": (
        {"lora": {"rank": 8, "target_modules": ["q_proj"]}},
        {"lora": {"rank": 8, "target_modules": ["linear_qkv"]}},
    ),
    "SENSE-RESUME": (
        {"checkpoint": {"finetune": True, "load": "a", "no_load_optim": False}},
        {"checkpoint": {"finetune": True, "load": "a"}},
    ),
    "SENSE-SAVE-OPTIM": (
        {"fault_tolerance": {"max_restarts": 1}},
        {"fault_tolerance": {"max_restarts": 1}, "checkpoint": {"save": "a", "save_interval": 5}},
    ),
    "SENSE-SHARD-ALONE": (
        {"parallel": {"distributed_optimizer": True, "tp": 8}, "model": {"num_key_value_heads": 8}},
        {"parallel": {"distributed_optimizer": True, "tp": 4}},
    ),
    "SENSE-TP-NODES": (
        {"parallel": {"tp": 8}, "cluster": {**_NODES, "devices_per_node": 4}},
        {"parallel": {"tp": 4}, "cluster": {**_NODES, "devices_per_node": 4}},
    ),
    "SENSE-NODE-DEVICES": (
        {"hardware": {"name": "Ascend-910B3", "node_devices": 8}, "cluster": {"devices_per_node": 16}},
        {"hardware": {"name": "Ascend-910B3", "node_devices": 8}, "cluster": {"devices_per_node": 8, "nodes": 2}},
    ),
    "SENSE-TRACKER": (
        {"logging": {"wandb_name": "first"}},
        {"logging": {"wandb_name": "first", "wandb_project": "p"}},
    ),
    "SENSE-RC-BLOCK": (
        {"recompute": {**_BLOCK, "num_layers": 3}, "parallel": {"pp": 2, "vpp": 2}},
        {"recompute": {**_BLOCK, "num_layers": 2}, "parallel": {"pp": 2, "vpp": 2}},
    ),
    "SENSE-PROFILER": (
        {"profiler": {"enabled": True, "start_step": 10, "end_step": 10}},
        {"profiler": {"enabled": True, "start_step": 10, "end_step": 11}},
    ),
    "SENSE-DEVICE": (
        {"hardware": {"name": "other", "device": "npu"}},
        {"hardware": {"name": "other", "device": "npu"}, "runtime": "rehearsal"},
    ),
}
# More than one fault of a rule.
MORE = {
    "a rate with which nothing converges": ("SENSE-LR-HIGH", {"optimizer": {"lr": 1.0}}),
    "rope type without factor": ("SENSE-ROPE-TYPE", {"model": {"rope_scaling": {"type": "yarn"}}}),
    "annealing longer than the decay": (
        "SENSE-WSD",
        {"schedule": {"lr_wsd_decay_iters": 101, "lr_decay_style": "WSD"}},
    ),
    "latent layers of another model": (
        "SENSE-LORA-TARGETS",
        {"lora": {"rank": 8, "target_modules": ["linear_q_proj"]}},
    ),
    "joint projection of a latent model": (
        "SENSE-LORA-TARGETS",
        {"lora": {"rank": 8, "target_modules": ["linear_qkv"]}, "model": _LATENT},
    ),
    "nothing to resume": ("SENSE-RESUME", {"checkpoint": {"finetune": False}}),
    "profile beyond the end": ("SENSE-PROFILER", {"profiler": {"enabled": True, "start_step": 100}}),
    "profile of a rank that does not exist": ("SENSE-PROFILER", {"profiler": {"enabled": True, "ranks": [8]}}),
    "address with a scheme": ("SENSE-ADDRESS", {"cluster": {"master_addr": "tcp://node0"}}),
}


def broken_rules(tree):
    tree = dict(tree)
    replaced = tree.pop("replaced", {})
    origins = {f"{section}.{name}": Origin(kind="override") for section in tree for name in tree[section]}
    origins |= {path: Origin(kind="derived", where="/models/a", replaced=text) for path, text in replaced.items()}
    job = make_job(tree)
    job = dataclasses.replace(job, origins=origins) if replaced or "parallel" in tree else job
    return {finding.rule for finding in run(RuleContext(job=job, backend="megatron_lm"))}


@pytest.mark.parametrize("id_", PAIRS)
def test_rule_finds_the_broken_job_and_passes_the_other(id_):
    broken, passing = PAIRS[id_]
    assert id_ in broken_rules(broken)
    assert id_ not in broken_rules(passing)


@pytest.mark.parametrize("name", MORE)
def test_rule_finds_its_other_faults(name):
    id_, broken = MORE[name]
    assert id_ in broken_rules(broken)


@pytest.mark.parametrize("address", ["10.0.0.1", "node-0.cluster.local", "fe80::1", "$MASTER_ADDR"])
def test_hosts_are_addresses(address):
    assert "SENSE-ADDRESS" not in broken_rules({"cluster": {"master_addr": address}})


def test_every_rule_has_a_pair():
    check_pairs(
        {id_ for id_ in RULES if id_.startswith("SENSE-")}, set(PAIRS), "PAIRS of tests/rules/test_sanity_checks.py"
    )


@pytest.mark.parametrize("backend", ["mindspeed", "mindformers"])
def test_hardware_of_another_kind_is_answered_with_hardware_that_the_backend_runs_on(backend: str) -> None:
    job = compose(["+recipe=tiny_qwen3", f"backend={backend}", "hardware=h100_80g", "runtime=native"])
    (finding,) = [each for each in judge(job).findings if each.rule == "SENSE-DEVICE"]
    assert finding.fixes
    for fix in finding.fixes:
        changed = compose(["+recipe=tiny_qwen3", f"backend={backend}", str(fix), "runtime=native"])
        assert changed.hardware.device == "npu"
        assert "SENSE-DEVICE" not in {each.rule for each in judge(changed).findings}
