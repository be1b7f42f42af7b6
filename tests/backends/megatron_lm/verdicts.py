"""Our verdict and the real one of Megatron-LM's and MindSpeed-LLM's checks on drawn command lines; what may differ."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from launcher.rules.registry import RULES
from launcher.translate.backend import Backend, get_backend
from tests.backends.megatron_lm import fuzzed, rule_cases

ENVIRONMENT = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
CHILDREN = {
    "megatron_lm": Path(__file__).with_name("rules_child.py"),
    "mindspeed": Path(__file__).parents[1] / "mindspeed" / "parser_child.py",
}
# Rules whose fault parser, validate_args and the configuration do not see, and where it shows.
LATER = {
    "BATCH-GLOBAL": "when micro-batches are counted (num_microbatches_calculator.py)",
    "BATCH-VPP": "when the schedule starts",
    "LR-WARMUP-LENGTH": "when the scheduler is built (optimizer_param_scheduler.py)",
    "MOE-EP-EXPERTS": "when the model is built (moe_layer.py:101)",
    "MOE-TOPK": "in the first forward pass",
    "MOE-TP-SP": "in the first forward pass (moe_layer.py:379)",
    "PAR-EXPERT-WORLD": "when process groups are made (parallel_state.py:793)",
    "PAR-PP-LAYERS": "when the model is built (transformer_block.py:155)",
    "PAR-SP-SEQ": "in the first forward pass",
    "PAR-TP-FFN": "when the model is built (tensor_parallel/utils.py)",
    "REQ-BATCH": "in the first forward pass: a sequence has a length",
    "REQ-LENGTH": "never: training has no end, or none at all",
    "REQ-MODEL": "when the model is built: a model has a width",
    "SENSE-HEADS": "when the model is built: query groups are of one size",
    "SENSE-SHARES": "when the optimizer is built, or never",
    "SENSE-VOCAB": "in the first forward pass: a token beyond the last row",
    "MS-RC-SWAP-MODULES": "when the model is built",
}
# What the machine decides, not the command line: files, packages, the environment.
_MACHINE = ("NCCL_ALGO", "No such file", "resiliency", "nvidia_modelopt", "check load dir", "retro config")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Verdicts on one command line: ids that refuse it here, and what upstream said (None: accepted)."""

    name: str
    ours: tuple[str, ...]
    real: str | None

    @property
    def kind(self) -> str:
        """Return `same`, `later` (we tell what shows only later), `machine`, `missed` or `false`."""
        if bool(self.ours) == (self.real is not None):
            return "same"
        if self.real is not None:
            return "machine" if any(text in self.real for text in _MACHINE) else "missed"
        return "later" if set(self.ours) <= set(LATER) else "false"


def compare(
    backend: str, version: str, arguments: Sequence[str], cases: Sequence[tuple[bool, str]], python: str = ""
) -> list[Verdict]:
    """Judge command lines ourselves and by the real checks, in one child process.

    Args:
        arguments: of the child, such as the checkout.
        cases: on the MoE base or the dense one, and the changes of it.
        python: interpreter of the child; empty: this one.
    """
    made = get_backend(backend)
    judged = [_ours(made, version, changes, moe=moe) for moe, changes in cases]
    lines = [json.dumps({"argv": rule_cases.words(values), "world_size": rule_cases.WORLD}) for values, _ in judged]
    child = subprocess.run(
        [python or sys.executable, str(CHILDREN[backend]), *arguments],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "USE_TF": "FALSE"},
    )
    assert child.returncode == 0, child.stderr[-2000:]
    answers = json.loads(child.stdout.splitlines()[-1])
    return [
        Verdict(name=f"{'moe' if moe else 'dense'} {changes}", ours=ours, real=answer or None)
        for (moe, changes), (_, ours), answer in zip(cases, judged, answers, strict=True)
    ]


def drawn(backend: str, version: str, count: int, seed: int) -> list[tuple[bool, str]]:
    """Return every argument alone, every corner, and `count` mixtures; where a start takes seconds only mixtures."""
    every = list(fuzzed.lines(get_backend(backend).catalogue(version), count, seed))
    return every[-count:] if backend == "mindspeed" else every


def _ours(backend: Backend, version: str, changes: str, *, moe: bool) -> tuple[Mapping[str, object], tuple[str, ...]]:
    values = rule_cases.values(backend, version, changes, moe=moe)
    catalogue = backend.catalogue(version)
    refused = [name for name, value in values.items() if catalogue.check(name, value)]
    found = rule_cases.findings(backend, version, values, ENVIRONMENT)
    rules = [f.rule for f in found if f.severity == "error" and not RULES[f.rule].is_stricter(version)]
    return values, tuple(sorted({*refused, *rules}))
