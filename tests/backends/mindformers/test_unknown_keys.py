"""Keys that MindFormers does not know: refused where it refuses them, reported as ignored where it ignores them."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from backends.mindformers import BACKEND
from launcher.api import check
from launcher.importing.config import Configuration
from launcher.importing.imported import Imported
from launcher.importing.invocation import Invocation
from launcher.importing.notes import ImportRefused
from launcher.importing.read_command import ImportOptions, read_command
from tests.sampling import ROOT

pytestmark = pytest.mark.slow

FILE = ROOT / "tests" / "importing" / "data" / "mindformers_qwen3.yaml"
# What MindFormers 1.6.0 itself did with `KEY: 4` in a file of Qwen3 (its template, builders and converter, called one
# by one on mindspore 2.7.0), and what the source of 2.1.0 does.
REFUSED, IGNORED = "refused", "ignored"
KEYS = {
    "parallel_config.foo": (REFUSED, REFUSED),
    "recompute_config.foo": (REFUSED, REFUSED),
    "swap_config.foo": (REFUSED, REFUSED),
    "runner_config.foo": (REFUSED, REFUSED),
    "monitor_config.foo": (REFUSED, REFUSED),
    "parallel.foo": (REFUSED, REFUSED),
    "context.foo": (REFUSED, IGNORED),
    "optimizer.foo": (REFUSED, REFUSED),
    "lr_schedule.foo": (IGNORED, IGNORED),
    "runner_wrapper.foo": (IGNORED, IGNORED),
    "trainer.foo": (IGNORED, IGNORED),
    "train_dataset.foo": (IGNORED, IGNORED),
    "model.foo": (IGNORED, IGNORED),
    "foo": (IGNORED, IGNORED),
    "foo.bar": (IGNORED, IGNORED),
    "model.model_config.num_expert_per_tok": (REFUSED, IGNORED),
    "model.model_config.kv_lora_rank": (REFUSED, ""),
    "model.model_config.sliding_window": ("", ""),
    "optimizer.amsgrad": ("", ""),
}


def file_with(key: str, value: Any) -> dict[str, Any]:
    tree = yaml.safe_load(FILE.read_text())
    node = tree
    *parents, leaf = key.split(".")
    for parent in parents:
        node = node.setdefault(parent, {})
    node[leaf] = value
    return tree


def read(tree: dict[str, Any], version: str, *, partial: bool = False) -> Imported:
    invocation = Invocation(program="job.yaml", backends=("mindformers",), where="job.yaml")
    wanted = ImportOptions(backend="mindformers", version=version, partial=partial)
    return read_command(invocation, wanted, Configuration(tree=tree))


def verdict_of(key: str, version: str) -> str:
    """Return what the file's check says of the key."""
    try:
        imported = read(file_with(key, 4), version)
    except ImportRefused as error:
        return REFUSED if key in str(error) else ""
    found = [finding for finding in check(imported) if finding.rule.startswith("MF-KEY") and key in finding.message]
    if any(finding.severity == "error" for finding in found):
        return REFUSED
    noted = any(key in note.message and "is not read by" in note.message for note in imported.warnings)
    return IGNORED if found or noted else ""


@pytest.mark.parametrize("key", KEYS)
def test_an_unknown_key_is_refused_or_ignored_as_by_mindformers(key: str) -> None:
    assert (verdict_of(key, "1.6.0"), verdict_of(key, "2.1.0")) == KEYS[key]


@pytest.mark.parametrize("key", [key for key, verdicts in KEYS.items() if verdicts[1] == REFUSED])
def test_a_job_made_of_such_a_file_is_refused_too(key: str) -> None:
    imported = read(file_with(key, 4), "2.1.0", partial=True)
    assert key in imported.job.backend.args
    rules = {f.rule for f in check(imported.job) if f.severity == "error" and key in f.message}
    assert rules & {"ARG-UNKNOWN", "MF-KEY"}


def test_the_near_name_is_offered() -> None:
    key = "model.model_config.num_expert_per_tok"
    messages = [f.message for f in check(read(file_with(key, 4), "2.1.0")) if f.rule == "MF-KEY-IGNORED"]
    assert any("did you mean model.model_config.num_experts_per_tok?" in message for message in messages)
    with pytest.raises(ImportRefused, match=r"works: parallel_config\.model_parallel"):
        read(file_with("parallel_config.model_paralel", 4), "2.1.0")


@pytest.mark.parametrize("version", BACKEND.versions)
def test_every_published_file_has_known_keys_only(version: str) -> None:
    """Files of the newest release; what 1.6.0 refuses in them, its own converter refuses (measured)."""
    later = {"1.6.0": {"use_contiguous_weight_layout_attention", "moe_token_dispatcher_type", "moe_aux_loss_coeff"}}
    text = (Path(__file__).parent / "upstream_examples.json").read_text()
    from launcher.mapping.engine import nest

    for flat in json.loads(text)["examples"].values():
        for finding in check(read(nest(flat), version)):
            keys = {part.partition(":")[0].rpartition(".")[2] for part in finding.message.split("; ")}
            assert finding.rule != "MF-KEY" or keys - {"swap"} <= later.get(version, set()), finding.message
