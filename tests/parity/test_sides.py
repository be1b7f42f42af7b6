"""What backends report as the loss of fine-tuning, and in which order they read samples, is known before training."""

import json
from pathlib import Path

import pytest

from launcher.compose import compose
from launcher.families.config_json import config_from_model
from launcher.parity.conversations import CONVERSATIONS, STRIDED
from launcher.parity.data import STRIDED_TEXT
from launcher.parity.parity import as_reported
from launcher.parity.runs import Iteration, Trained
from launcher.parity.sides import CannotCompare, Side, check_means, on_shared, side_of
from tests.conftest import Launch


def side(backend: str, *words: str) -> Side:
    given = ["+recipe=tiny_qwen3", "task=sft", *words]
    return side_of(given, backend, entry="native", python=None, environ={}, config_dirs=(), iterations=2)


def test_a_backend_that_reports_micro_batches_is_compared_with_their_mean() -> None:
    iterations = (Iteration(iteration=1, loss=2.0, grad_norm=1.0, token_loss=3.0),)
    reference = Trained(label="transformers", iterations=iterations, problem="", command="", log="", seconds=0.0)
    sides = [side("megatron"), side("mindspeed")]
    assert [as_reported(reference, each.label, sides).iterations[0].loss for each in sides] == [3.0, 2.0]
    per_token = [side("mindspeed", "precision.calculate_per_token_loss=true")]
    assert as_reported(reference, "mindspeed", per_token).iterations[0].loss == 3.0


def test_two_means_are_not_compared_with_one_another() -> None:
    with pytest.raises(CannotCompare, match="megatron reports the mean loss of all predicted tokens") as refused:
        check_means([side("megatron"), side("mindspeed")])
    assert any("--reference transformers" in works for works in refused.value.works)
    word = "precision.calculate_per_token_loss=true"
    assert word in refused.value.works
    check_means([side("megatron", word), side("mindspeed", word)])
    check_means([side("megatron", "batch.packing=true"), side("mindspeed", "batch.packing=true")])
    check_means([side("megatron", "task=pretrain"), side("mindspeed", "task=pretrain")])


@pytest.mark.parametrize(("backend", "file"), [("megatron", STRIDED), ("mindspeed", CONVERSATIONS)])
def test_conversations_are_read_unshuffled_in_the_jobs_chat_template(backend: str, file: str) -> None:
    made = on_shared(side(backend, "data.template=qwen3"), model=Path("/m"), data=Path("/d"), folder=Path("/f"))
    assert made.data.paths == (f"/d/{file}",)
    assert (made.data.format, made.data.shuffle, made.data.template) == ("messages", False, "qwen3")


def test_texts_are_read_in_the_order_of_a_backend_whose_ranks_read_every_nth() -> None:
    made = on_shared(side("megatron", "task=pretrain"), model=Path("/m"), data=Path("/d"), folder=Path("/f"))
    assert (made.data.format, made.data.paths) == ("text", (f"/d/{STRIDED_TEXT}",))


def test_samples_of_a_micro_batch_are_padded_and_micro_batches_differ() -> None:
    made = side("megatron", "cluster.devices_per_node=2").job
    assert made.batch.micro_batch_size == 2
    assert made.batch.global_batch_size == 2 * made.batch.micro_batch_size * (made.parallel.dp or 1)


def test_the_users_own_weights_keep_their_model_and_no_other(launch: Launch, tmp_path: Path) -> None:
    config = config_from_model(compose(["+recipe=tiny_qwen3"]).model, torch_dtype="float32")
    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "config.json").write_text(json.dumps(config))
    (weights / "model.safetensors").write_bytes(b"")
    made = side_of(
        [f"model.path={weights}"],
        "megatron_lm",
        entry="core",
        python=None,
        environ={},
        config_dirs=[],
        iterations=2,
    )
    assert made.job.model.hidden_size == config["hidden_size"]
    assert made.job.model.num_hidden_layers == config["num_hidden_layers"]
    job = (f"model.path={weights}", "model.hidden_size=64", "precision.dtype=fp32")
    refused = launch("parity", *job, "--backends", "megatron_lm", "--entry", "core", "--reference", "transformers")
    assert refused.code == 1
    assert "model.hidden_size differ from its config.json" in refused.err
