"""Rules of context parallelism and recomputation against MindSpeed-LLM's real validators: the same verdict."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from backends.mindspeed import BACKEND
from backends.mindspeed.rehearse import NATIVE_CPU
from launcher.rules.registry import RULES
from tests.backends.megatron_lm import rule_cases
from tests.rehearse.native.environments import python_with, torch_pin

VERSION = "26.1.0"
ENVIRONMENT = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
# MindSpeed is imported anew for every command line, a few seconds each: sections 25 and 26 and the pipeline's shape.
KINDS = ("MS-CP-", "MS-RC-", "MS-SWAP-", "MS-VPP-", "MS-LIST-", "MS-NOOP-")


def verdict_of_rules(changes: str, *, moe: bool) -> tuple[dict[str, object], list[str]]:
    """Return the values of a case, and what refuses it here as upstream should."""
    values = rule_cases.values(BACKEND, VERSION, changes, moe=moe)
    catalogue = BACKEND.catalogue(VERSION)
    refused = [name for name, value in values.items() if catalogue.check(name, value)]
    found = rule_cases.findings(BACKEND, VERSION, values, ENVIRONMENT)
    rules = [f.rule for f in found if f.severity == "error" and not RULES[f.rule].is_stricter(VERSION)]
    return values, refused + rules


@pytest.mark.slow
def test_rules_and_mindspeed_agree() -> None:
    unset = [tree.variable for tree in NATIVE_CPU.checkouts if not os.environ.get(tree.variable)]
    if unset:
        pytest.skip(f"{', '.join(unset)} not set: they name the checkouts of MindSpeed-LLM, MindSpeed and Megatron-LM")
    pins = {need.distribution: f"{need.distribution}=={need.version}" for need in NATIVE_CPU.tested_with}
    needs = [pins.get(need.distribution, need.distribution) for need in NATIVE_CPU.requires]
    python = python_with("mindspeed", (torch_pin(),), (torch_pin(), *(need for need in needs if need != "torch")))
    cases = [
        (f"{case.id} {kind}", *verdict_of_rules(changes, moe=case.base == "moe"))
        for case in rule_cases.read(Path(__file__).parent / "rule_pairs.txt")
        for kind, changes in (("broken", case.broken), ("passing", case.passing))
        if case.id.startswith(KINDS) and case.version.endswith(VERSION)
    ]
    lines = [json.dumps({"argv": rule_cases.words(values), "world_size": rule_cases.WORLD}) for _, values, _ in cases]
    child = subprocess.run(
        [str(python), str(Path(__file__).with_name("parser_child.py"))],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "USE_TF": "FALSE"},
    )
    assert child.returncode == 0, child.stderr[-2000:]
    answers = json.loads(child.stdout.splitlines()[-1])
    differing = {
        name: (answer, refused)
        for (name, _, refused), answer in zip(cases, answers, strict=True)
        if bool(answer) != bool(refused)
    }
    print(f"{len(cases) - len(differing)} of {len(cases)} verdicts agree with MindSpeed-LLM {VERSION}")
    assert differing == {}
