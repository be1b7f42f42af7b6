"""The user's own weights are measured before anything is converted: memory and disk that are needed and there."""

import json
import struct
from pathlib import Path

from launcher.compose import compose
from launcher.families.config_json import config_from_model
from launcher.parity.request import Request
from launcher.parity.size import disk_needed, memory_needed, parameters
from tests.conftest import Launch

WORDS = (
    "optimizer.lr=1e-3",
    "precision.dtype=fp32",
    "--backends",
    "megatron_lm",
    "--entry",
    "core",
    "cluster.devices_per_node=1",
)


def weights(folder: Path, count: int) -> Path:
    """Write the config of a tiny model, and weights of so many parameters as a file with a hole."""
    folder.mkdir()
    config = config_from_model(compose(["+recipe=tiny_qwen3"]).model, torch_dtype="bfloat16")
    (folder / "config.json").write_text(json.dumps(config))
    header = json.dumps({"a": {"dtype": "BF16", "shape": [count], "data_offsets": [0, 2 * count]}}).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + 2 * count)
    return folder


def test_weights_that_are_too_large_are_refused_with_what_is_needed(launch: Launch, tmp_path: Path) -> None:
    large = weights(tmp_path / "large", 2**40)
    assert parameters(large) == 2**40
    refused = launch("parity", f"model.path={large}", *WORDS, "--reference", "transformers")
    assert refused.code == 1
    assert "has 1,099,511,627,776 parameters: the comparison needs at least 16384.0 GiB of memory" in refused.err
    assert "GiB on the disk" in refused.err
    assert "works: rehearse.shrink=true" in refused.err
    assert "estimate.enforce=false" in refused.err
    assert [each.name for each in tmp_path.iterdir()] == ["large"]


def test_what_is_needed_follows_the_training() -> None:
    job = compose(["+recipe=tiny_qwen3"])
    assert memory_needed(job, 10) == 160
    assert memory_needed(compose(["+recipe=tiny_qwen3", "cluster.devices_per_node=2"]), 10) == 320
    assert memory_needed(compose(["+recipe=tiny_qwen3", "task=dpo"]), 10) > memory_needed(job, 10)
    asked = Request(overrides=(), backends=("a", "b"), iterations=1)
    assert disk_needed(asked, 10) > disk_needed(Request(overrides=(), backends=("a",), iterations=1), 10) > 0
