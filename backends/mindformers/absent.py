"""What the absence of keys means in training with MindFormers' data sets and checkpoints."""

from collections.abc import Mapping

from backends.mindformers.mapping.loader import is_megatron
from launcher.job import Job, Value


def absent(job: Job) -> Mapping[str, Value]:
    """Return the canonical fields that absent keys decide.

    Token files are cut into full sequences, as in Megatron-LM; Hugging Face data sets are padded unless a handler packs
    them; without load_checkpoint and a directory of weights, weights are random.
    """
    found: dict[str, Value] = {"batch.packing": is_megatron(job)}
    if job.checkpoint.load is None and job.model.path is None and job.model.hub_id is None:
        found["model.pretrained"] = False
    return found
