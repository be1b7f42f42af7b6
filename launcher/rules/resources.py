"""Rules on data, checkpoints and machines: errors that would otherwise appear only after start-up."""

import re
from collections.abc import Iterator, Mapping

from launcher.job import value_at
from launcher.job.secret import is_secret, redacted_fields, text_fields
from launcher.plan.executor import find_executor
from launcher.rules.registry import RuleContext, Violation, rule


@rule("DATA-MISSING", source="launch", reads="job.data.format job.data.paths", severity="warning")
def data_is_named(context: RuleContext) -> Iterator[Violation]:
    """A job without data can be shown and checked, but not started."""
    data = context.job.data
    if data.format not in ("sample", "mock") and data.paths in ((), ("${DATA_PATH}",)):
        yield Violation(
            message="data.paths is empty: the job needs data to start; the script reads it from DATA_PATH",
            fields=("data.paths",),
        )


@rule(
    "NET-MASTER",
    source="ms-swift#4897: nodes that each train independently",
    reads="job.runtime job.rehearse.shrink job.rehearse.fake_world job.cluster.nodes job.cluster.master_addr "
    "job.cluster.executor",
    severity="warning",
)
def master_address_is_known(context: RuleContext) -> Iterator[Violation]:
    """Several nodes need one rendezvous address; without it they would wait, or each train independently."""
    cluster, rehearse = context.job.cluster, context.job.rehearse
    if context.job.runtime == "rehearsal" and (rehearse.shrink or rehearse.fake_world):
        return  # all of it runs on this machine
    if cluster.nodes > 1 and cluster.master_addr is None and _is_one_machine(cluster.executor):
        yield Violation(
            message=f"{cluster.nodes} nodes need cluster.master_addr, or MASTER_ADDR in the environment of every node",
            fields=("cluster.master_addr",),
        )
    if cluster.nodes > 1 and cluster.master_addr in ("localhost", "127.0.0.1", "127.0.1.1", "::1"):
        yield Violation(
            message=f"{cluster.nodes} nodes cannot rendezvous at the loopback address {cluster.master_addr}",
            fields=("cluster.master_addr",),
        )


def _is_one_machine(name: str) -> bool:
    executor = find_executor(name)
    return executor is not None and executor.one_machine


@rule("ENV-SECRET", source="launch: secrets by reference only", reads="job.*", severity="warning")
def secrets_are_references(context: RuleContext) -> Iterator[Violation]:
    """A secret is never written into a plan, a file or a log: it is taken from the environment when the job starts."""
    for field in text_fields():
        for path, text in _texts(field, value_at(context.job, field)):
            for name in dict.fromkeys(_secret_references(path, text)):
                yield Violation(
                    message=f"{name} is taken from the environment when the job starts: export it there",
                    fields=(path,),
                )


@rule(
    "SECRET-PLACE",
    source="launch: secrets by reference only",
    reads="job.backend.name job.backend.version job.hardware.measured job.hardware.name job.hardware.source "
    "job.hardware.unverified job.model.path job.name job.output_dir job.rules.disable job.cluster.*",
)
def secrets_can_be_resolved(context: RuleContext) -> Iterator[Violation]:
    """Queue options, names and folders are used as they are written: a secret in them would be stored and shown."""
    for path in redacted_fields(context.job):
        yield Violation(
            message=f"{path} holds a secret, and references are not resolved there: it is removed; delete it, or "
            "pass it as an environment variable (backend.env.NAME, or export NAME where the job starts)",
            fields=(path,),
        )


# References to environment variables in plans.
_REFERENCE = r"\$\{([A-Z][A-Z0-9_]*)\}"
_EXPORTED = r"(?:^--export[= ]|,)([A-Za-z_]\w*)(?=,|$)"


def _secret_references(path: str, text: str) -> Iterator[str]:
    if path == "cluster.sbatch_options":
        yield from (
            (name for name in re.findall(_EXPORTED, text) if is_secret(name)) if text.startswith("--export") else ()
        )
    if "${" in text:
        key = path.rpartition(".")[2]
        for name in re.findall(_REFERENCE, text):
            if is_secret(name) or is_secret(key) or name == key:
                yield name


def _texts(path: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            inner = f"{path}.{name}" if path in ("backend.args", "backend.env") else path
            yield from _texts(inner, item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(path, item)


@rule(
    "CKPT-INTERVAL", source="launch", reads="job.checkpoint.save_interval job.schedule.train_iters", severity="warning"
)
def checkpoints_are_written(context: RuleContext) -> Iterator[Violation]:
    """A checkpoint interval beyond the end of training writes only the last one, or none."""
    interval, end = context.job.checkpoint.save_interval, context.job.schedule.train_iters
    if interval is not None and end is not None and interval > end:
        yield Violation(
            message=f"checkpoint.save_interval {interval} is above schedule.train_iters {end}",
            fields=("checkpoint.save_interval", "schedule.train_iters"),
        )


@rule(
    "CKPT-NONE",
    source="launch",
    reads="job.checkpoint.save job.checkpoint.save_interval job.data.format",
    severity="warning",
)
def something_is_saved(context: RuleContext) -> Iterator[Violation]:
    """A job that saves no checkpoint loses the trained weights."""
    checkpoint = context.job.checkpoint
    if (
        checkpoint.save is None
        and checkpoint.save_interval is None
        and context.job.data.format not in ("sample", "mock")
    ):
        yield Violation(
            message="no checkpoint is saved: set checkpoint.save_interval", fields=("checkpoint.save_interval",)
        )


@rule(
    "CKPT-RESUME-OR-START",
    source="Megatron-LM: --load without --finetune resumes",
    reads="job.model.pretrained job.model.path job.model.hub_id job.checkpoint.load job.checkpoint.finetune",
    severity="warning",
)
def loading_is_explicit(context: RuleContext) -> Iterator[Violation]:
    """A checkpoint is resumed, with its iteration and optimizer, unless the job declares a new start."""
    checkpoint, model = context.job.checkpoint, context.job.model
    if checkpoint.load is not None and checkpoint.finetune is None and model.starts_from_weights:
        yield Violation(
            message="checkpoint.load resumes the run that wrote it; converted weights start a new one: "
            "set checkpoint.finetune to true (new start) or false (resume)",
            fields=("checkpoint.finetune", "checkpoint.load"),
        )


@rule(
    "CKPT-NO-INTERVAL",
    source="Megatron-LM core_v0.12.1 arguments.py:704",
    reads="job.checkpoint.save job.checkpoint.save_interval",
)
def saving_has_interval(context: RuleContext) -> Iterator[Violation]:
    """A directory for checkpoints needs a save interval."""
    checkpoint = context.job.checkpoint
    usual = context.catalogue is not None and context.catalogue.style != "argparse"  # its parser has a default
    if checkpoint.save is not None and checkpoint.save_interval is None and not usual:
        yield Violation(message="checkpoint.save needs checkpoint.save_interval", fields=("checkpoint.save_interval",))


@rule(
    "LORA-COMPLETE",
    source="launch",
    reads="job.lora.rank job.lora.alpha job.lora.target_modules job.lora.quantization",
    severity="warning",
)
def lora_options_need_rank(context: RuleContext) -> Iterator[Violation]:
    """LoRA options have no effect without a rank."""
    lora = context.job.lora
    if lora.rank is None and (lora.alpha is not None or lora.target_modules or lora.quantization is not None):
        yield Violation(
            message="LoRA options are set, but lora.rank is not: all parameters are trained", fields=("lora.rank",)
        )
