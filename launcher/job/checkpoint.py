"""Checkpoints: what is loaded at the start of training and saved during it."""

from launcher.job.option import option
from launcher.job.sources import ARGUMENTS
from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NonPersistent:
    """Checkpoints between those of save_interval, for restarts after a fault; only the last one is kept."""

    save_interval: int | None = option(
        None,
        "Steps between non-persistent checkpoints.",
        unit="iterations",
        source=f"{ARGUMENTS} --non-persistent-save-interval",
        minimum=1,
    )
    type: str | None = option(
        None,
        "Where they are stored: one folder for all ranks, or each node.",
        source=f"{ARGUMENTS} --non-persistent-ckpt-type",
        choices=("global", "local", "in_memory"),
    )
    global_dir: str | None = option(
        None,
        "global: their folder; none: `non_persistent` in checkpoint.save.",
        source=f"{ARGUMENTS} --non-persistent-global-ckpt-dir",
    )
    local_dir: str | None = option(
        None, "local: their folder on every node.", source=f"{ARGUMENTS} --non-persistent-local-ckpt-dir"
    )
    local_algo: str | None = option(
        None,
        "local: all ranks share the writing, or each writes what it holds.",
        source=f"{ARGUMENTS} --non-persistent-local-ckpt-algo",
        choices=("fully_parallel", "atomic"),
    )
    replication: bool | None = option(None, "local: other nodes keep copies.", source=f"{ARGUMENTS} --replication")
    replication_jump: int | None = option(
        None,
        "Ranks between a rank and those that keep its copies.",
        unit="ranks",
        source=f"{ARGUMENTS} --replication-jump",
        minimum=1,
    )
    replication_factor: int | None = option(
        None, "Nodes that keep a copy of each rank's part.", source=f"{ARGUMENTS} --replication-factor", minimum=1
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """Converts `load` to another format and exits without training."""

    format: str | None = option(
        None,
        "Convert to this format; none: train.",
        source=f"{ARGUMENTS} --ckpt-convert-format",
        choices=("torch", "torch_dist", "zarr"),
    )
    save: str | None = option(None, "Folder below which it is written.", source=f"{ARGUMENTS} --ckpt-convert-save")
    update_legacy_optimizer: bool | None = option(
        None,
        "Upgrade a distributed optimizer's layout from before February 2024.",
        source=f"{ARGUMENTS} --ckpt-convert-update-legacy-dist-opt-format",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What is loaded at the start and saved during training."""

    save: str | None = option(None, "Directory of checkpoints; none: nothing is saved.", source=f"{ARGUMENTS} --save")
    save_interval: int | None = option(
        None, "Steps between checkpoints.", unit="iterations", source=f"{ARGUMENTS} --save-interval", minimum=1
    )
    load: str | None = option(
        None,
        "Checkpoint in the backend's own format to start or resume from.",
        source=f"{ARGUMENTS} --load",
        affects_training=True,
    )
    load_step: int | None = option(
        None,
        "Step of `load` that is loaded; none: the latest.",
        unit="iterations",
        source=f"{ARGUMENTS} --ckpt-step",
        minimum=0,
        affects_training=True,
    )
    fallback: str | None = option(
        None,
        "Checkpoint that weights are loaded from if `load` holds none.",
        source=f"{ARGUMENTS} --pretrained-checkpoint",
        affects_training=True,
    )
    load_arguments: bool | None = option(
        None, "Sizes of the model come from `load`.", source=f"{ARGUMENTS} --use-checkpoint-args", affects_training=True
    )
    load_parallel_arguments: bool | None = option(
        None,
        "load_arguments: the parallel layout comes from `load` too.",
        source=f"{ARGUMENTS} --use-mp-args-from-checkpoint-args",
    )
    load_tokenizer: bool | None = option(
        None,
        "load_arguments: the tokenizer comes from `load` too; none: yes.",
        source=f"{ARGUMENTS} --no-use-tokenizer-model-from-checkpoint-args",
    )
    load_schedule: bool | None = option(
        None,
        "The schedule comes from `load` (true) or from the job (false); none: they must agree.",
        source=f"{ARGUMENTS} --use-checkpoint-opt_param-scheduler, --override-opt_param-scheduler",
        affects_training=True,
    )
    detect_format: bool | None = option(
        None, "Recognise the format of `load`.", source=f"{ARGUMENTS} --auto-detect-ckpt-format"
    )
    finetune: bool | None = option(
        None,
        "Load weights only: iteration, optimizer and random state are reset.",
        source=f"{ARGUMENTS} --finetune",
        affects_training=True,
    )
    format: str | None = option(
        None,
        "Format written.",
        source=f"{ARGUMENTS} --ckpt-format",
        choices=("torch_dist", "torch", "torch_dcp", "fsdp_dtensor", "zarr", "safetensors", "ckpt"),
    )
    load_format: str | None = option(
        None,
        "Format of `load`; none: recognised.",
        source="MindFormers load_ckpt_format",
        choices=("safetensors", "ckpt"),
    )
    reshard: bool | None = option(None, "Convert `load` to this job's layout.", source="MindFormers auto_trans_ckpt")
    load_strategy: str | None = option(
        None, "Layout files of `load`; none: beside it.", source="MindFormers src_strategy_path_or_dir"
    )
    prefix: str | None = option(None, "Beginning of file names.", source="MindSpore CheckpointConfig")
    merge_shards: bool | None = option(
        None, "Gather a weight's parts before it is written.", source="MindSpore CheckpointConfig.integrated_save"
    )
    remove_redundancy: bool | None = option(
        None, "Write each weight once, not on every data-parallel rank.", source="MindSpore CheckpointConfig"
    )
    remote: str | None = option(None, "Storage that outputs are copied to.", source="MindFormers remote_save_url")
    save_safetensors: bool | None = option(None, "Also write Hugging Face safetensors.")
    save_total_limit: int | None = option(None, "Checkpoints kept.", minimum=1)
    save_retain_interval: int | None = option(
        None,
        "Keep only checkpoints at multiples of these steps; others are removed when the next is written.",
        unit="iterations",
        source=f"{ARGUMENTS} --save-retain-interval",
        minimum=1,
    )
    non_persistent: NonPersistent = NonPersistent()
    convert: Conversion = Conversion()
    async_save: bool | None = option(
        None, "Write asynchronously, while training continues.", source=f"{ARGUMENTS} --async-save"
    )
    persistent_worker: bool | None = option(
        None, "async_save: one process writes all checkpoints.", source=f"{ARGUMENTS} --use-persistent-ckpt-worker"
    )
    parallel_save: bool | None = option(
        None, "Data-parallel ranks share the writing.", source=f"{ARGUMENTS} --no-ckpt-fully-parallel-save"
    )
    parallel_load: bool | None = option(
        None, "Data-parallel ranks share the reading.", source=f"{ARGUMENTS} --ckpt-fully-parallel-load"
    )
    constant_structure: bool | None = option(
        None,
        "Compute the layout of checkpoints once, since it does not change within a run.",
        source=f"{ARGUMENTS} --ckpt-assume-constant-structure",
    )
    no_save_optim: bool | None = option(None, "Do not save the optimizer.", source=f"{ARGUMENTS} --no-save-optim")
    no_save_rng: bool | None = option(None, "Do not save random states.", source=f"{ARGUMENTS} --no-save-rng")
    no_load_optim: bool | None = option(
        None, "Do not load the optimizer.", source=f"{ARGUMENTS} --no-load-optim", affects_training=True
    )
    no_load_rng: bool | None = option(
        None, "Do not load random states.", source=f"{ARGUMENTS} --no-load-rng", affects_training=True
    )
    optimizer_fully_reshardable: bool | None = option(
        None,
        "Save the optimizer so that it resumes at any layout.",
        source=f"{ARGUMENTS} --dist-ckpt-optim-fully-reshardable",
    )
    optimizer_reshardable_mem_efficient: bool | None = option(
        None,
        "optimizer_fully_reshardable: less memory for more time, through gloo.",
        source=f"{ARGUMENTS} --distrib-optim-fully-reshardable-mem-efficient",
    )
    save_pre_mcore_014: bool | None = option(
        None,
        "Weight layout of Megatron-core before 0.14.",
        source=f"{ARGUMENTS} --dist-ckpt-save-pre-mcore-014",
    )
    strictness: str | None = option(
        None,
        "Handling of differences between the weights of `load` and of the model.",
        source=f"{ARGUMENTS} --dist-ckpt-strictness",
    )
    exit_on_missing: bool | None = option(
        None, "Stop if load names no checkpoint.", source=f"{ARGUMENTS} --exit-on-missing-checkpoint"
    )
