"""What the absence of arguments means in training with Megatron-LM's data sets and checkpoints."""

from collections.abc import Mapping

from launcher.job import Job, Value


def absent(job: Job) -> Mapping[str, Value]:
    """Return the canonical fields that absent arguments decide.

    Pre-training cuts the tokens of all documents into full sequences (megatron/core/datasets/gpt_dataset.py
    `_build_document_sample_shuffle_indices` @core_v0.16.1), fine-tuning pads them; without --load and a model's name,
    weights are random.
    """
    found: dict[str, Value] = {"batch.packing": job.task.type == "pretrain"}
    if job.checkpoint.load is None and job.model.path is None and job.model.hub_id is None:
        found["model.pretrained"] = False
    return found
