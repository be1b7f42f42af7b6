"""Our verdict and the real one of ms-swift 4.6.0 for the same jobs, and what may differ, with the reason."""

import dataclasses
import json
import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backends.megatron.launch import argv, command
from launcher.job import Job
from launcher.models.hf import config_from_model
from launcher.pipeline import judge

ROOT = Path(__file__).resolve().parents[3]

# Rules whose fault the argument classes and the model's configuration do not see, and where it shows.
LATER = {
    "MOE-TP-SP": "in the first forward pass (moe_layer.py:379)",
    "MOE-EP-EXPERTS": "when the model is built (moe_layer.py:101)",
    "MOE-TOPK": "in the first forward pass",
    "PAR-PP-LAYERS": "when the model is built (transformer_block.py:155)",
    "PAR-TP-FFN": "when the model is built (tensor_parallel/utils.py)",
    "PAR-CP-SEQ": "in the first forward pass",
    "PAR-SP-SEQ": "in the first forward pass",
    "BATCH-VPP": "when the schedule starts",
    "SW-PRECISION-AWARE": "after the weights are loaded (optimizer_config.py)",
    "SW-STATE-DTYPE": "after the weights are loaded (optimizer_config.py)",
    "SW-STREAM-ITERS": "when training starts",
    "SW-STREAM-EVAL": "when training starts",
    "SW-EPOCH-STREAM": "when training starts",
    "MAP-UNSUPPORTED": "never: a value that no option expresses would be left out in silence",
    "SW-RC-MODULES": "never where recompute is off",
}
# What only the machine decides, not the job.
_MACHINE = ("TE >=", "TE version", "transformer-engine", "fused permutation", "apply_rope_fusion is not available")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One job's verdicts.

    Attributes:
        ours: ids of the errors that we tell.
        real: what the real classes said; None: accepted.
    """

    name: str
    ours: tuple[str, ...]
    real: str | None

    @property
    def kind(self) -> str:
        """Return `same`, `later` (we tell what shows only later), `missed` or `false`."""
        if bool(self.ours) == (self.real is not None):
            return "same"
        if self.real is not None:
            return "machine" if any(text in self.real for text in _MACHINE) else "missed"
        return "later" if set(self.ours) <= set(LATER) else "false"


def compare(jobs: Iterable[tuple[str, Job]], python: Path, folder: Path, timeout: float = 1500) -> list[Verdict]:
    """Judge every job ourselves and by the real classes, in one child process.

    Args:
        python: interpreter of an environment with ms-swift 4.6.0.
        folder: for the models' directories.
    """
    ours: dict[str, tuple[str, ...]] = {}
    cases = []
    for name, job in jobs:
        located, case = _case(name, job, folder)
        outcome = judge(located, fixes=False)
        ours[name] = tuple(sorted({f.rule for f in outcome.findings if f.severity == "error"}))
        cases.append(case | {"argv": [*argv(outcome.native), *case["argv"]]})
    result = subprocess.run(
        [str(python), "-m", "tests.backends.megatron.real_parser"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if result.returncode:
        raise RuntimeError(result.stderr[-4000:])
    real = {line["name"]: line["error"] for line in map(json.loads, result.stdout.splitlines())}
    return [Verdict(name=name, ours=ours[name], real=real[name]) for name in ours]


def _case(name: str, job: Job, folder: Path) -> tuple[Job, dict[str, Any]]:
    home = folder / name.replace(" ", "_")
    home.mkdir(parents=True)
    (home / "config.json").write_text(json.dumps(config_from_model(job.model)))
    model = dataclasses.replace(job.model, path=str(home))
    checkpoint = dataclasses.replace(job.checkpoint, save=str(folder / "out"), save_interval=5)
    located = dataclasses.replace(job, model=model, checkpoint=checkpoint)
    return located, {
        "name": name,
        "command": command(job),
        "argv": ["--check_model", "false"],
        "world_size": job.cluster.world_size,
        "local_world_size": job.cluster.devices_per_node,
    }
