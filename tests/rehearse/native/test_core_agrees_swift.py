"""The embedded trainer fine-tunes as ms-swift's own ``megatron sft`` and ``rlhf`` do, from the same messages."""

import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.compose import compose
from launcher.pipeline import judge
from launcher.rehearse.weights import convert
from launcher.runtime import planned
from tests.rehearse.native.test_megatron_swift import Workshop, train, workshop

sys.path.append(str(Path(__file__).parents[1] / "core"))
from core_world import Zygote

__all__ = ["workshop"]  # a fixture
pytestmark = pytest.mark.slow

TURNS = [{"role": "user", "content": "Hi there"}, {"role": "assistant", "content": "Yes, of course"}]
ROWS = {"sft": {"messages": TURNS}, "dpo": {"messages": TURNS, "rejected_response": "No, never"}}
# The template and the cross entropy of transformers: swift's default one rounds logits to bf16.
SWIFT = {"template": "chatml", "system": "", "cross_entropy_loss_fusion": "false", "train_iters": 6, "save_steps": 3}
RELATIVE = 1e-5


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    with Zygote(tmp_path_factory.mktemp("ranks")) as process:
        yield process


def trained_here(zygote: Zygote, folder: Path, *overrides: str) -> tuple[list[float], list[float]]:
    """Return losses and gradient norms of the rehearsal of a job on one process."""
    common = (
        *("backend=megatron", "runtime=rehearsal", "precision.dtype=fp32", "cluster.devices_per_node=1"),
        *("batch.seq_length=64", "batch.micro_batch_size=2", "batch.global_batch_size=8", "schedule.train_iters=6"),
        *("schedule.lr_warmup_iters=2", "schedule.lr_decay_style=cosine", "optimizer.lr=1e-3", "optimizer.min_lr=1e-4"),
        *("data.format=messages", f"output_dir={folder}"),
    )
    plan = planned(judge(compose([*common, *overrides]), fixes=False))
    folder.mkdir()
    for file in plan.files:
        Path(file.path).write_text(file.content)
    for node in plan.prepare:
        convert(json.loads(Path(node.argv[-1]).read_text()))
    exit_codes, output = zygote.call("launcher.rehearse.core.__main__:main", plan.nodes[0].argv[3:], ranks=1)
    assert exit_codes == [0], output
    result = json.loads((folder / "result.json").read_text())
    return result["losses"], result["grad_norms"]


@pytest.mark.parametrize("task", ["sft", "dpo"])
def test_losses_and_gradient_norms_are_those_of_ms_swift(
    zygote: Zygote, workshop: Workshop, tmp_path: Path, task: str
) -> None:
    """Every sample is the same one: the order does not matter."""
    data = tmp_path / "data.jsonl"
    data.write_text((json.dumps(ROWS[task]) + "\n") * 64)
    same = dataclasses.replace(workshop, data={"sft": data, "dpo": data})
    verb, more = ("rlhf", {"rlhf_type": "dpo", "beta": 0.1}) if task == "dpo" else ("sft", {})
    native = train(same, f"same_{task}", 1, "tiny_qwen3", {**SWIFT, **more}, verb)
    model = workshop.model("tiny_qwen3")
    words = [f"task={task}", f"model.path={model}", f"tokenizer.path={model}", f"data.paths=[{data}]"]
    losses, norms = trained_here(zygote, tmp_path / "run", *words, "model.pretrained=true")
    assert losses == pytest.approx(native.losses, rel=RELATIVE)
    assert norms == pytest.approx(native.grad_norms, rel=RELATIVE)
    if task == "sft":
        load = (f"checkpoint.load={native.out}/checkpoint-3", "checkpoint.finetune=true")
        again, _ = trained_here(zygote, tmp_path / "loaded", *words, *load)
        assert again[0] == pytest.approx(native.losses[3], rel=RELATIVE)
