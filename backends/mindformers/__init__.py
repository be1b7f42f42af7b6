"""MindFormers (MindSpore Transformers): the mcore static graph, a YAML file under msrun."""

from dataclasses import replace
from functools import cache
from pathlib import Path

from backends.mindformers.environment import ENVIRONMENT
from backends.mindformers.mapping_values import MAPPING_VALUES
from backends.mindformers.other_models import OTHER_MODELS
from backends.mindformers.support import SUPPORT
from launcher.catalogue.catalogue import Catalogue, load
from launcher.catalogue.registered import registered
from launcher.catalogue.versions import in_range
from launcher.job import Job
from launcher.mapping.backend import Backend, Entry, late
from launcher.plan.start import NUMBER, Watch

__all__ = ["BACKEND"]

_FOLDER = Path(__file__).parent / "catalogue"
_REGISTERED = registered(Path(__file__).parent / "versions.json")


@cache
def _catalogue(version: str) -> Catalogue:
    return load(_FOLDER / f"{version}.json")


def prepare(job: Job, version: str) -> Job:
    """Return the job with MindFormers' default for unset `etp`: experts are not split by tensor parallelism."""
    if not job.model.is_moe or job.parallel.etp is not None:
        return job
    return replace(job, parallel=replace(job.parallel, etp=1))


_SAME = (
    "run_mode do_eval seed use_parallel load_checkpoint src_strategy_path_or_dir auto_trans_ckpt transform_process_num "
    "only_save_strategy resume_training remote_save_url profile output_dir trust_remote_code"
)
ENTRY = Entry(
    scripts={"run_mindformer.py": ""},
    config=("config",),
    # run_mindformer.py:270-380 @r1.6.0
    options={
        **{name: name for name in _SAME.split()},
        "mode": "context.mode",
        "device_id": "context.device_id",
        "device_target": "context.device_target",
        "strategy_load_checkpoint": "parallel.strategy_ckpt_load_file",
        "train_dataset_dir": "train_dataset.data_loader.dataset_dir",
        "eval_dataset_dir": "eval_dataset.data_loader.dataset_dir",
        "epochs": "runner_config.epochs",
        "batch_size": "runner_config.batch_size",
        "gradient_accumulation_steps": "runner_config.gradient_accumulation_steps",
        "sink_mode": "runner_config.sink_mode",
        "num_samples": "train_dataset.data_loader.num_samples",
    },
    pairs=("options",),
    flatten=late("backends.mindformers.yaml_file:flatten"),
    file_notes=late("backends.mindformers.yaml_file:file_notes"),
    native_only=late("backends.mindformers.native_only.table:rows"),
    only={"run_mode": ("train", "finetune")},
    other_models=OTHER_MODELS,
    markers=("MS_", "MINDFORMERS_", "ASCEND_", "HCCL_"),
)

BACKEND = Backend(
    name="mindformers",
    title="MindFormers",
    versions=_REGISTERED.names,
    default_version="2.1.0",
    devices=("npu",),
    table=late("backends.mindformers.mapping.table:table"),
    catalogue=_catalogue,
    launch=late("backends.mindformers.launch:launch"),
    native_cpu="backends.mindformers.rehearse",
    families=late("backends.mindformers.families:families"),
    unbuildable=late("backends.mindformers.families:rows"),
    checkpoint_format="backends.mindformers.checkpoint",
    adapter_format="backends.mindformers.adapter",
    prepare=prepare,
    argv=late("backends.mindformers.launch:argv"),
    computations=late("backends.mindformers.computations:computations"),
    profile=late("backends.mindformers.profile:rows"),
    mapping_values=MAPPING_VALUES,
    rules=tuple(
        f"backends.mindformers.rules.{name}"
        for name in (
            *(
                "general",
                "pipeline",
                "keys",
                "layers",
                "model",
                "pynative",
                "rehearsal",
                "values",
                "known_names",
                "data_files",
                "registered",
            ),
            *("effective.defaults", "effective.model", "effective.training", "effective.unread"),
        )
    ),
    requires=("module:mindspore", "env:MINDFORMERS_PATH"),
    install_hint="install MindSpore for your Ascend driver, clone MindFormers at the tag of the version and set "
    "MINDFORMERS_PATH to it",
    aliases=_REGISTERED.aliases,
    absent=late("backends.mindformers.absent:absent"),
    substitutes=late("backends.mindformers.substitutes:substitutes"),
    attention_dtype=late("backends.mindformers.mapping.support:attention_dtype"),
    entry=ENTRY,
    other_entries=tuple(f"{version}-pynative" for version in _REGISTERED.names if in_range(version, "1.9", None)),
    environment=ENVIRONMENT,
    support=SUPPORT,
    launchers=_FOLDER / "launchers",
    watch=Watch(
        # core/callback/callback.py, MFLossMonitor and CheckpointMonitor @1.6.0; checkpoint/utils.py @2.1.0
        iteration_line=r"step:\[ *[0-9]+/ *[0-9]+\]",
        trackers=(("", "latest_checkpointed_iteration.txt"), ("checkpoint", "rank_0/meta.json")),
        rank_log="msrun_log/worker_{rank}.log",
        figures=(
            ("iteration", rf"step:\[ *({NUMBER})/", 1.0),
            ("iterations", rf"step:\[ *[0-9]+/ *({NUMBER})\]", 1.0),
            ("loss", rf" loss:(?: |\[ *)({NUMBER})", 1.0),
            ("step_s", rf"per_step_time: ({NUMBER})ms", 1e-3),
            ("tflops_per_device", rf"train_throughput_per_npu: ({NUMBER})T", 1.0),
            ("grad_norm", rf"global_norm: \[?({NUMBER})", 1.0),
        ),
    ),
)
