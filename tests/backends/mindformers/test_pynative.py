"""A `TrainConfig` of the pynative trainer is read as the static graph's file that trains the same."""

from pathlib import Path
from typing import Any

from launcher.api import check, import_file
from launcher.importing.imported import Imported
from launcher.importing.read_command import ImportOptions
from launcher.importing.read_file import read_file
from launcher.importing.roundtrip import differences
from launcher.job import value_at

FILE = Path(__file__).parent / "pynative.yaml"


def imported() -> Imported:
    """Return the job of the file, its backend found by its keys."""
    (found,) = read_file(FILE, ImportOptions())
    return found


MEANT: dict[str, Any] = {
    "seed": 7,
    "task.type": "pretrain",
    "schedule.train_iters": 10,
    "schedule.lr_decay_style": "constant",
    "optimizer.lr": 1e-5,
    "optimizer.clip_grad": 0.5,
    "optimizer.adam_beta2": 0.95,
    "batch.micro_batch_size": 1,
    "batch.global_batch_size": 16,
    "batch.seq_length": 4096,
    "parallel.tp": 2,
    "parallel.pp": 2,
    "parallel.vpp": 2,
    "parallel.ep": 2,
    "parallel.dp": 2,
    "parallel.sequence_parallel": True,
    "parallel.zero_stage": 2,
    "model.model_type": "deepseek_v3",
    "model.num_experts": 8,
    "model.rope_scaling.type": "yarn",
    "model.rope_scaling.factor": 40,
    "recompute.granularity": "full",
    "recompute.method": "uniform",
    "data.format": "megatron",
    "data.paths": ("/data/wiki_text_document",),
    "data.eod_token_id": 1,
    "checkpoint.save": "./output/checkpoint",
    "checkpoint.save_interval": 100,
    "checkpoint.prefix": "deepseekv3",
    "kernels.deterministic": True,
}


def test_it_is_read_into_canonical_fields() -> None:
    found = imported()
    assert found.backend == "mindformers"
    assert {path: value_at(found.job, path) for path in MEANT} == MEANT
    assert differences(found) == []
    assert not found.exact


def test_what_the_static_graph_does_not_have_is_named() -> None:
    reported = " ".join(str(note) for note in imported().warnings)
    assert "parallelism.enable_mc2" in reported
    assert "parallelism.data_parallel_shard_strategy" in reported  # weights are not sharded there
    assert "parallelism.tensor_parallel" not in reported


def test_it_is_refused_for_nothing() -> None:
    """Defaults of the model's class hold for what the file omits, such as no bias in experts."""
    assert [finding for finding in check(import_file(FILE)) if finding.severity == "error"] == []
