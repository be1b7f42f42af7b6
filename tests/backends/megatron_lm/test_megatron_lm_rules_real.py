"""The pairs of the rules against Megatron-LM's real parser, validator and configuration: the same verdict."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from backends.megatron_lm import BACKEND
from launcher.catalogue.versions import in_range
from launcher.rules.registry import RULES
from tests.backends.megatron_lm import rule_cases
from tests.backends.megatron_lm.checkout import CHECKOUT, checked_out_version

ENVIRONMENT = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
# What Megatron-LM says there is no matter of arguments, or fails only after its checks.
ARGUED = {
    "MLM-LOCAL-CHECKPOINT-DIR": "needs the package nvidia_resiliency_ext",
    "MLM-REPLICATION-JUMP": "needs the package nvidia_resiliency_ext",
    "MLM-REPLICATION-LOCAL": "needs the package nvidia_resiliency_ext",
    "MLM-DETERMINISTIC-CE": "needs NCCL_ALGO in the environment, which is a warning here",
    "MLM-DETERMINISTIC-FLASH": "needs NCCL_ALGO in the environment, which is a warning here",
    "MLM-DETERMINISTIC-NCCL": "needs NCCL_ALGO in the environment, which is a warning here",
    "MLM-PHASE-RAMPUP": "training without an end passes its checks",
    **dict.fromkeys(
        (
            "MLM-RAMPUP-NUMBERS",
            "MLM-RAMPUP-RANKS",
            "MLM-RAMPUP-STEPS",
            "MLM-STEP-DECREASE",
            "MLM-STEP-RANKS",
            "MLM-STEP-VALUES",
        ),
        "the calculator of micro-batches refuses it after its checks: test_rampup_real.py",
    ),
    "MLM-DP-OUTERMOST": "asserted where process groups are made, after its checks",
    "MLM-OPT-INSTANCES": "asserted where process groups are made, after its checks",
    "MLM-OPT-INSTANCES-EP": "asserted where process groups are made, after its checks",
    "MLM-OPT-INSTANCES-ALONE": "asserted where the model is wrapped, after its checks",
    "MLM-OPT-INSTANCES-EXPERTS": "asserted where the model is wrapped, after its checks",
    "MLM-RC-UNIFORM-CHUNK": "an IndexError of the first forward pass, after its checks",
    "MLM-MTP-RC-LAYERS": "asserted in the first forward pass, after its checks",
    "MLM-DSA-SHARED-STAGE": "raised where the layers of a stage are built, after its checks",
    "MLM-CP-COMM-NAMES": "a ValueError of Transformer Engine in the first forward pass",
    "MLM-SFT-PROMPT": "a NotImplementedError where the tokenizer is built, after its checks",
    "MLM-DSA-BF16": "asserted in the first step",
    "MLM-DSA-MTP": "an IndexError in the first step",
    "MLM-MOE-PATTERN": "asserted where the layers are built, after its checks: test_layer_patterns_real.py",
    "MLM-GDN-PATTERN": "asserted where the layers are built, after its checks",
    "MLM-WINDOW-PATTERN": "an IndexError in the first forward pass: test_layer_patterns_real.py",
    "MLM-VARIANT-TE": "asserted where the layers are built, after its checks",
    "MLM-WANDB-NAME": "a ValueError where the writer of W&B is made, after its checks",
    "MLM-SAVE-INTERVAL-POSITIVE": "an interval of 0 passes the checks of 0.12 and never saves",
}
# The same before 0.19, which sets NCCL_ALGO itself.
ARGUED_18 = {"MLM-DETERMINISTIC-TP-OVERLAP": "needs NCCL_ALGO in the environment, which is a warning here"}
# The same since 0.17.
ARGUED_17 = {
    "MLM-MUON-COEFFICIENTS": "a ValueError of emerging-optimizers when the optimizer is built, or in its first step",
    "MLM-RL-OFFLOAD": "needs the package torch_memory_saver",
}


def verdict_of_rules(version: str, changes: str, *, moe: bool) -> tuple[dict[str, object], list[str]]:
    """Return the values of a case, and what refuses it here."""
    values = rule_cases.values(BACKEND, version, changes, moe=moe)
    catalogue = BACKEND.catalogue(version)
    refused = [name for name, value in values.items() if catalogue.check(name, value)]
    found = rule_cases.findings(BACKEND, version, values, ENVIRONMENT)
    errors = [f.rule for f in found if f.severity == "error" and not RULES[f.rule].is_stricter(version)]
    return values, refused + [rule for rule in errors if rule not in ARGUED]


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
@pytest.mark.skipif(checked_out_version() is None, reason="MEGATRON_LM_PATH names no Megatron-LM of a known version")
def test_rules_and_megatron_agree() -> None:
    version = checked_out_version()
    assert version is not None
    argued = {
        **ARGUED,
        **(ARGUED_17 if in_range(version, "0.17", None) else {}),
        **(ARGUED_18 if in_range(version, None, "0.18.99") else {}),
    }
    cases = [
        (f"{case.id} {kind}", *verdict_of_rules(version, changes, moe=case.base == "moe"))
        for case in rule_cases.read(Path(__file__).parent / "rule_pairs.txt")
        for kind, changes in (("broken", case.broken), ("passing", case.passing))
        if case.id not in argued
    ]
    lines = [json.dumps({"argv": rule_cases.argv_of(values), "world_size": rule_cases.WORLD}) for _, values, _ in cases]
    child = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("rules_child.py")), CHECKOUT],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert child.returncode == 0, child.stderr[-2000:]
    answers = json.loads(child.stdout.splitlines()[-1])
    differing = {
        name: (answer, refused)
        for (name, _, refused), answer in zip(cases, answers, strict=True)
        if bool(answer) != bool(refused)
    }
    print(f"{len(cases) - len(differing)} of {len(cases)} verdicts agree with Megatron-LM {version}")
    shown = [f"{name}: {answer}; here {refused}" for name, (answer, refused) in differing.items()]
    assert not differing, "\n".join(shown)
