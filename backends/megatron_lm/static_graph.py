"""Fields of MindSpore's static graph: why PyTorch backends do not need them, or what they do instead."""

from collections.abc import Mapping
from dataclasses import replace

from launcher.job import Value, field_paths
from launcher.mapping.rows import Gap, warning, without

_NO_GRAPH = "PyTorch runs operators as they come: there is no graph to compile"
_NO_TEXT = "training generates no text"


def _evaluated(why: str, *neutral: Value, works: tuple[str, ...] = ()) -> Gap:
    return replace(warning(why, *neutral, works=works), matters=lambda job: job.evaluation.iters != 0)


GAPS: Mapping[str, Gap] = {
    "batch.interleave": warning("micro-batches follow one another", 1),
    "overlap.sequence_parts": warning("a sequence is computed as a whole", 1),
    "parallel.schedule": warning(
        "its schedule is 1f1b, interleaved where parallel.vpp is set", "1f1b", works=("parallel.schedule=1f1b",)
    ),
    "parallel.dw_detach": warning("it has no DualPipeV", False),
    "parallel.split_vocabulary": warning("the embedding is split over tp", True),
    "precision.loss_scale_factor": Gap(why="its dynamic loss scale doubles", neutral=(2,)),
    "parallel.optimizer_shard_size": warning("the optimizer is sharded over all data-parallel ranks"),
    "recompute.optimizer_communication": warning("gathered weights are kept", False),
    "data.repeat": Gap(why="use schedule.epochs or schedule.train_iters", neutral=(1,)),
    "data.drop_last": Gap(why="every step has the full batch", neutral=(True,), works=("data.drop_last=true",)),
    "data.columns": warning("the data set has the columns that its model takes"),
    "data.max_documents": warning("sequences hold any number of documents"),
    "logging.loss": warning("the loss is always logged", True),
    "checkpoint.prefix": warning("checkpoints are named by their step"),
    "checkpoint.merge_shards": warning("each rank writes its own part", False),
    "checkpoint.remove_redundancy": warning("every weight is written once", True),
    "data.ignore_token_id": Gap(why="labels that the loss leaves out are -100", neutral=(-100,)),
    "schedule.layerwise": Gap(why="all layers share one learning rate", neutral=(False,)),
    "schedule.scale_by_batch": Gap(why="optimizer.lr is used unchanged", neutral=(False,)),
    "evaluation.epochs": _evaluated("it evaluates after steps", works=("evaluation.interval=100",)),
    "evaluation.metric": _evaluated("it evaluates the loss"),
    "evaluation.shuffle": _evaluated("samples of the evaluation come as its data set orders them"),
    "evaluation.drop_last": _evaluated(
        "every step of the evaluation has the full batch", True, works=("evaluation.drop_last=true",)
    ),
    "evaluation.columns": _evaluated("evaluation reads the columns that training reads"),
    "checkpoint.remote": warning("outputs stay where they are written"),
}

_IRRELEVANT = {
    "kernels.qkv_concat": "a layout of weights; its own is converted to",
    "model.label": "a name in MindFormers' logs and files",
    "model.legacy": "the sizes describe the same architecture; the classes are MindFormers' own",
    "logging.dir": "logs go to the terminal, which the launcher keeps, and to logging.tensorboard_dir",
    "precision.norm_in_fp32": "its norms compute in fp32 inside the kernel",
    "precision.rope_in_fp32": "rotary frequencies are fp32",
    "checkpoint.load_format": "the format is recognised",
    "checkpoint.reshard": "checkpoints are loaded at any layout",
    "checkpoint.load_strategy": "a checkpoint holds its own layout",
    "data.worker_processes": "workers are processes",
    "data.prefetch": "a matter of MindSpore's pipeline",
    "data.numa": "a matter of MindSpore's pipeline",
    "data.eod_token_id": "the tokenizer sets it",
    "data.pad_token_id": "the tokenizer sets it",
    "model.newer_names": "it says what config.json has",
    "tokenizer.pad_is_eos": "it says what the tokenizer does",
    "tokenizer.has_code": "it says what the tokenizer does",
    "tokenizer.bos_token_id": "the tokenizer sets it",
    "tokenizer.eos_token_id": "the tokenizer sets it",
    "tokenizer.pad_token_id": "the tokenizer sets it",
    "tokenizer.bos_token": "the tokenizer sets it",
    "tokenizer.eos_token": "the tokenizer sets it",
    "tokenizer.pad_token": "the tokenizer sets it",
    "tokenizer.unk_token": "the tokenizer sets it",
    "schedule.layer_decay": without("schedule.layerwise"),
    "schedule.reference_batch_size": without("schedule.scale_by_batch"),
    "profiler.memory": "part of its traces",
    "profiler.communication": "part of its traces",
    "profiler.from_start": "only steps are traced",
}


def irrelevant() -> dict[str, str]:
    """Return the static-graph fields that are irrelevant to a PyTorch backend, with the reason."""
    graph = dict.fromkeys((path for path in field_paths() if path.startswith("graph.")), _NO_GRAPH)
    generation = dict.fromkeys((path for path in field_paths() if path.startswith("generation.")), _NO_TEXT)
    return {**graph, **generation, **_IRRELEVANT}
