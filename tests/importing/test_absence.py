"""What the absence of arguments means in a script is kept by a port, and shown by diff."""

from pathlib import Path

import pytest

from launcher.api import import_file
from launcher.compose import compose
from launcher.job import Job, value_at
from launcher.mapping.backend import get_backend
from launcher.port.port import port_job
from launcher.rules.effects import meaning

PRETRAIN = (
    "torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 2 --num-layers 4 --hidden-size 512 "
    "--ffn-hidden-size 2048 --num-attention-heads 8 --seq-length 1024 --max-position-embeddings 1024 "
    "--micro-batch-size 1 --global-batch-size 8 --train-iters 10 --lr 1e-4 --bf16 --data-path d "
    "--tokenizer-type HuggingFaceTokenizer --tokenizer-model /m/qwen --save out --save-interval 5"
)
SFT = (
    "NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen3-8B --dataset a.jsonl --tensor_model_parallel_size 2 "
    "--micro_batch_size 1 --global_batch_size 8 --num_train_epochs 2 --lr 1e-5"
)


def ported(script: str, target: str, tmp_path: Path) -> Job:
    file = tmp_path / "train.sh"
    file.write_text(script + "\n")
    job = import_file(file).job
    backend = get_backend(target)
    return port_job(job, backend, backend.default_version).job


CASES = {
    "pre-training cuts full sequences": (PRETRAIN, "megatron", "batch.packing", True),
    "nothing is loaded: random weights": (PRETRAIN, "megatron", "model.pretrained", False),
    "both cut full sequences: nothing to write": (PRETRAIN, "mindspeed", "batch.packing", None),
    "both pad samples: nothing to write": (SFT, "mindspeed", "batch.packing", None),
    "the number of epochs": (SFT, "mindspeed", "schedule.epochs", 2),
}


@pytest.mark.parametrize(("script", "target", "path", "value"), CASES.values(), ids=CASES)
def test_a_port_keeps_what_absence_means(script: str, target: str, path: str, value: object, tmp_path: Path) -> None:
    assert value_at(ported(script, target, tmp_path), path) == value


def test_a_port_writes_no_value_that_the_target_sets_alike(tmp_path: Path) -> None:
    job = ported(PRETRAIN + " --weight-decay 0.1", "mindspeed", tmp_path)
    assert (job.optimizer.start_weight_decay, job.precision.grad_reduce_in_fp32) == (None, None)


def test_packing_of_one_job_on_two_backends() -> None:
    job = compose(["+recipe=tiny_qwen3", "data.format=text", "data.paths=[a.jsonl]"])
    found = {
        name: meaning(job, get_backend(name), get_backend(name).default_version).fields["batch.packing"].value
        for name in ("megatron", "mindspeed")
    }
    assert found == {"megatron": False, "mindspeed": True}
