"""Builds the launch plan of a rehearsal: the embedded trainer on megatron-core, or the backend itself on CPU."""

import dataclasses
import os
from collections.abc import Iterator, Mapping

from backends import CORE_BACKEND
from launcher.job import Job, Value, fields, output_dir, value_at, with_values
from launcher.job.finding import Finding, Fix
from launcher.job.rehearse import SWITCHES
from launcher.job.task import LORA_ALPHA, LORA_DROPOUT
from launcher.mapping.backend import get_backend
from launcher.mapping.engine import translate
from launcher.pipeline import Outcome, chosen_backend, judge
from launcher.plan import LaunchPlan, NodePlan, PlanFile, Watch
from launcher.plan.rendezvous import torchrun
from launcher.rehearse.adapt import REHEARSED, adapted, without
from launcher.rehearse.adapters import InitialAdapters, initial_adapters
from launcher.rehearse.core.checks import check
from launcher.rehearse.core.data.tokenizer import has_tokenizer
from launcher.rehearse.core.errors import RehearsalError
from launcher.rehearse.core.options import (
    DataKind,
    DataOptions,
    Device,
    FakeWorld,
    LoraOptions,
    PreferenceOptions,
    TrainerOptions,
)
from launcher.rehearse.core.report import FIGURES
from launcher.rehearse.data_files import check_data
from launcher.rehearse.native_plan import native_plan
from launcher.rehearse.refusal import RehearsalRefused
from launcher.rehearse.weights import initial_weights

BACKEND, VERSION = CORE_BACKEND
_UNKNOWN, _ARGS = "ARG-UNKNOWN", "backend.args."
_TASKS = ("pretrain", "sft", "dpo")
# Fields that the rehearsal sets itself, so that the dialect's translation need not support them.
_OWN_FIELDS = (
    "task.type",
    "data.paths",
    "data.validation_paths",
    "data.cache_path",
    "batch.packing",
    "batch.padding_free",
    "model.path",
    "model.hub_id",
    "tokenizer.path",
    "tokenizer.type",
    "checkpoint.save_safetensors",
    "lora.rank",
    "lora.alpha",
    "lora.dropout",
    "lora.target_modules",
    "lora.rslora",
    "lora.load",
    "task.beta",
    "task.loss_type",
    "task.label_smoothing",
    "task.rpo_alpha",
)


def rehearsal_plan(outcome: Outcome, environ: Mapping[str, str] = os.environ) -> LaunchPlan:
    """Return the plan of a job's rehearsal.

    Args:
        environ: environment in which it is to run.

    Raises:
        RehearsalRefused: the rehearsal would train something else than the job.
    """
    return rehearsal(outcome, environ)[0]


def rehearsal(outcome: Outcome, environ: Mapping[str, str] = os.environ) -> tuple[LaunchPlan, Job, Watch]:
    """Return the plan of a job's rehearsal, the job that it actually runs, and what to watch.

    Args:
        environ: environment in which it is to run.

    Raises:
        RehearsalRefused: the rehearsal would train something else than the job.
    """
    job, notes = adapted(outcome.job, os.cpu_count() or 1)
    if job.rehearse.entry == "native":
        plan, watch = _native(job, outcome, notes, environ)
    else:
        try:
            plan, watch = _core(job, outcome, notes)
        except RehearsalRefused as refused:
            if not _may_choose(job):
                raise
            plan, watch = _instead(job, outcome, notes, environ, refused)
    return plan, job, dataclasses.replace(watch, checkpoints=None if job.rehearse.fake_world else job.checkpoint.save)


def _may_choose(job: Job) -> bool:
    """Return whether the entry is this program's choice: a shrunken job of which the user named none."""
    return job.rehearse.shrink and job.rehearse.entry is None and not job.rehearse.fake_world


def _native(job: Job, outcome: Outcome, notes: tuple[str, ...], environ: Mapping[str, str]) -> tuple[LaunchPlan, Watch]:
    return native_plan(dataclasses.replace(outcome, job=job), notes, environ), outcome.backend.watch


def _instead(
    job: Job, outcome: Outcome, notes: tuple[str, ...], environ: Mapping[str, str], refused: RehearsalRefused
) -> tuple[LaunchPlan, Watch]:
    """Return the plan of the backend's own entry point for a job that the embedded trainer refuses.

    Raises:
        RehearsalRefused: it cannot run here either; holds the reasons of both.
    """
    note = f"rehearse.entry=native, as rehearse.entry=core cannot train this job: {refused.findings[0].message}"
    named = with_values(job, {"rehearse.entry": "native"}, REHEARSED)
    try:
        version = chosen_backend(named)[1]
        if version != outcome.version:
            outcome = judge(with_values(outcome.job, {"backend.version": version}, REHEARSED), fixes=False)
        return _native(named, outcome, (note, *notes), environ)
    except RehearsalRefused as other:
        tried = (dataclasses.replace(each, message=f"rehearse.entry=native: {each.message}") for each in other.findings)
        raise RehearsalRefused([*refused.findings, *tried]) from None


def _core(job: Job, outcome: Outcome, notes: tuple[str, ...]) -> tuple[LaunchPlan, Watch]:
    """Return the plan of the embedded trainer, and what to watch of it.

    Raises:
        RehearsalRefused: it would train something else than the job.
    """
    watch = dataclasses.replace(get_backend(BACKEND).watch, figures=FIGURES, saves_on_signal=False)
    try:
        return _core_plan(job, outcome, notes), watch
    except RehearsalRefused as refused:
        raise RehearsalRefused(_with_fix(job, outcome, refused.findings)) from None


def _with_fix(job: Job, outcome: Outcome, findings: list[Finding]) -> list[Finding]:
    """Return the reasons of a refusal, the first with what to leave out where the job is trained without it."""
    names = tuple(name for name in SWITCHES if value_at(job, name) not in (None, False))
    # A fork's own arguments: megatron-core reads none of them.
    own = tuple(path for each in findings if each.rule == _UNKNOWN for path in each.fields if path.startswith(_ARGS))
    if not names and not own:
        return findings
    try:
        _core_plan(_without_args(without(job, names)[0], own), outcome, ())
    except RehearsalRefused:
        return findings
    named = tuple(dict.fromkeys((*job.rehearse.leave_out, *names)))
    leave_out = (f"rehearse.leave_out=[{','.join(named)}]",) if names else ()
    fix = Fix(overrides=(*leave_out, *(f"{path}=null" for path in own)), affects_training=True)
    return [dataclasses.replace(findings[0], fixes=(fix,)), *findings[1:]]


def _without_args(job: Job, paths: tuple[str, ...]) -> Job:
    args = {name: value for name, value in job.backend.args.items() if f"{_ARGS}{name}" not in paths}
    return dataclasses.replace(job, backend=dataclasses.replace(job.backend, args=args))


def _core_plan(job: Job, outcome: Outcome, notes: tuple[str, ...]) -> LaunchPlan:
    folder = output_dir(job)
    if job.task.type not in _TASKS:
        raise RehearsalRefused([_refusal("task.type", job, f"it trains {' and '.join(_TASKS)}")])
    check_data(job, _data(job))
    weights = initial_weights(job, folder)
    argv, dropped = core_argv(weights.job, outcome.backend.name)
    argv = (*argv, *weights.argv)
    adapters = initial_adapters(job, folder)
    options = trainer_options(job, folder, adapters)
    path = f"{folder}/rehearsal.json"
    ranks = job.cluster.world_size
    judged = _judged(argv, ranks, options.device)
    module = ("-m", "launcher.rehearse.core", "--options", path, "--", *argv)
    start: tuple[str, ...] = ("python", *module)
    if job.rehearse.fake_world:
        what = (
            f"rehearsal: megatron-core simulates ranks of a world of {ranks} in one process, one iteration, no training"
        )
    else:
        count = job.cluster.nodes
        place = "here" if count == 1 else f"on {count} nodes"
        what = (
            f"rehearsal: the real megatron-core trains this job {place} on {ranks} process{'es' if ranks > 1 else ''}"
        )
    what += f" (in place of {outcome.backend.title} {outcome.version})"
    env = (
        {"OMP_NUM_THREADS": "1", "CUDA_DEVICE_MAX_CONNECTIONS": "1"}
        if ranks > 1
        else {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    )
    env |= job.backend.env
    alone = ranks == 1 or job.rehearse.fake_world
    commands = [start] if alone else [torchrun(job, rank, module) for rank in range(job.cluster.nodes)]
    return LaunchPlan(
        nodes=tuple(NodePlan(rank=rank, argv=command, env=env) for rank, command in enumerate(commands)),
        files=(PlanFile(path=path, content=options.to_json() + "\n"), *weights.files),
        prepare=(*weights.prepare, *adapters.prepare),
        output_dir=folder,
        what=what,
        notes=(*notes, *filter(None, (weights.note, adapters.note)), *dropped, *judged),
    )


def _judged(argv: tuple[str, ...], ranks: int, device: Device | None) -> tuple[str, ...]:
    """Return notes on the arguments that the embedded trainer does not honour.

    Raises:
        RehearsalRefused: some of them change training, or it cannot run them at this world size.
    """
    try:
        judged = check(argv, ranks, device)
    except RehearsalError as error:
        findings = [
            Finding(rule="REHEARSE-UNSUPPORTED", severity="error", message=problem, source="launcher/rehearse/core")
            for problem in error.problems
        ]
        raise RehearsalRefused(findings) from None
    return tuple(f"ignored: {row.flag} ({row.why})" for row in judged.ignored)


def core_argv(job: Job, native: str | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the Megatron-LM command line of a job, and notes on what the rehearsal does differently.

    Args:
        native: name of the job's backend; only pass-through arguments of the dialect are supported.

    Raises:
        RehearsalRefused: a value that changes training has no Megatron-LM form.
    """
    backend = get_backend(BACKEND)
    values = dict(_plain_values(job))
    plain = with_values(job, values, REHEARSED)
    passed = job.backend.args if native == BACKEND else {}
    plain = dataclasses.replace(plain, backend=dataclasses.replace(plain.backend, args=passed))
    translation = translate(backend.prepare(plain, VERSION), backend, VERSION)
    errors = [finding for finding in translation.findings if finding.severity == "error" and _trains(finding)]
    if errors:
        raise RehearsalRefused(errors)
    notes = [f"not rehearsed: {finding.message}" for finding in translation.findings if finding not in errors]
    notes += _notes(job, values, passed)
    argv = backend.argv(translation.native)
    if job.checkpoint.load is not None:
        # The job sets the training length: without this flag a resumed run with more iterations is rejected.
        argv.append("--override-opt_param-scheduler")
    return tuple(argv), tuple(notes)


def _notes(job: Job, values: Mapping[str, Value], passed: Mapping[str, Value]) -> Iterator[str]:
    """Yield notes on what the rehearsal omits."""
    if job.backend.args and not passed:
        yield "not rehearsed, though it may change training: backend.args " + ", ".join(job.backend.args)
    quiet = {"model.pretrained", "data.format", "data.paths", "model.path", "model.hub_id", "tokenizer.path"}
    quiet |= {path for path in values if path.startswith(("lora.", "task."))}
    for replaced, note in _equivalents(job):
        quiet |= replaced.keys()
        yield note
    dropped = [path for path in values if path not in quiet and value_at(job, path) != values[path]]
    if dropped:
        yield "not rehearsed: " + ", ".join(f"{path}={value_at(job, path)}" for path in dropped)
    data = _data(job)
    if not data.paths and (job.data.format not in (None, "sample", "mock") or data.kind != "sample"):
        instead = f"{job.data.format or 'no'} data ({', '.join(job.data.paths) or 'no paths'})"
        yield f"data: {_SHIPPED[data.kind]} the shipped text instead of {instead}"


def _trains(finding: Finding) -> bool:
    return any(
        path not in fields() or fields()[path].meta.affects_training or path.startswith("parallel.")
        for path in finding.fields
    )


def _plain_values(job: Job) -> Iterator[tuple[str, Value]]:
    """Values that the dialect need not support: the rehearsal has its own data, tokenizer and random weights."""
    table = get_backend(BACKEND).table(VERSION)
    foreign = [path for path in (*table.unsupported, *table.irrelevant) if path.startswith("data.")]
    for path in (*_OWN_FIELDS, *foreign):
        if value_at(job, path) != fields()[path].default:
            yield path, fields()[path].default
    yield "model.pretrained", False
    yield "data.format", "mock"
    for values, _note in _equivalents(job):
        yield from values.items()


def _equivalents(job: Job) -> Iterator[tuple[dict[str, Value], str]]:
    """Yield values that compute what the job's do and that the dialect lacks, and the note on each replacement."""
    if job.moe.token_dispatcher_type == "alltoall_seq":
        yield {"moe.token_dispatcher_type": "alltoall"}, "moe.token_dispatcher_type: alltoall moves the same tokens"
    # A smaller model loads no weights, whose names are those of the multimodal model.
    if job.model.position_embedding == "mrope" and (job.rehearse.shrink or job.rehearse.fake_world):
        values: dict[str, Value] = {"model.position_embedding": "rope", "model.mrope_section": ()}
        yield (
            {**values, "model.model_type": None},
            "the language model alone: in text, positions in time, height and width are one (rope instead of mrope)",
        )


_KINDS: dict[tuple[str, str | None], DataKind] = {
    ("dpo", "messages"): "preferences",
    **{(task, kind): kind for task in ("pretrain", "sft") for kind in ("text", "messages", "megatron")},
}
# What replaces data that is not on this machine, by task; and how it is described.
_SAMPLES: dict[str, DataKind] = {"sft": "messages", "dpo": "preferences"}
_SHIPPED = {"sample": "samples of", "messages": "conversations made of", "preferences": "pairs of answers made of"}


_DEVICES: Mapping[str | None, Device] = {"cpu": "cpu", "cuda": "cuda"}


def _data(job: Job) -> DataOptions:
    """Return the training data: the job's where it is on this machine, else samples made of the shipped text."""
    kind = _KINDS.get((job.task.type, job.data.format)) if job.data.paths else None
    if kind is None:
        return DataOptions(kind=_SAMPLES.get(job.task.type, "sample"))
    tokenizer = job.tokenizer.path or job.model.path
    if kind == "megatron" and not (tokenizer and _needs_end_of_document(job) and has_tokenizer(tokenizer)):
        tokenizer = None
    return DataOptions(kind=kind, paths=job.data.paths, tokenizer=tokenizer)


def _needs_end_of_document(job: Job) -> bool:
    return bool(job.data.eod_mask_loss or job.data.reset_attention_mask or job.data.reset_position_ids)


def _preference(job: Job) -> PreferenceOptions | None:
    """Return the loss of preference training.

    Raises:
        RehearsalRefused: another loss, or another reference than the start model.
    """
    task = job.task
    if task.type != "dpo":
        return None
    refused = []
    if task.loss_type not in (None, "sigmoid"):
        refused.append(_refusal("task.loss_type", job, "its loss is TRL's sigmoid"))
    if task.reference_model is not None:
        refused.append(_refusal("task.reference_model", job, "its reference is the start model"))
    if refused:
        raise RehearsalRefused(refused)
    given = {"beta": task.beta, "label_smoothing": task.label_smoothing, "rpo_alpha": task.rpo_alpha}
    return PreferenceOptions(**{name: value for name, value in given.items() if value is not None})


def trainer_options(job: Job, folder: str, adapters: InitialAdapters | None = None) -> TrainerOptions:
    """Return the trainer options in addition to Megatron-LM's arguments.

    Args:
        job: what is rehearsed.
        folder: its outputs.
        adapters: what `lora.load` becomes; None: as `initial_adapters` says.

    Raises:
        RehearsalRefused: the loss or the adapters are others than the trainer's.
    """
    fake = None
    if job.rehearse.fake_world:
        fake = FakeWorld(world_size=job.cluster.world_size, ranks=job.rehearse.ranks or _default_ranks(job))
    return TrainerOptions(
        output_dir=folder,
        data=_data(job),
        device=_DEVICES.get(job.rehearse.device),
        fake_world=fake,
        lora=_lora(job, adapters or initial_adapters(job, folder)),
        preference=_preference(job),
    )


def _lora(job: Job, adapters: InitialAdapters) -> LoraOptions | None:
    """Return the adapters to train.

    Raises:
        RehearsalRefused: the adapters to start from cannot be loaded, or the weights are to be quantised.
    """
    lora = job.lora
    if lora.rank is None:
        return None
    refused = [_refusal("lora.load", job, adapters.refused)] if adapters.refused else []
    if lora.quantization is not None:
        refused.append(_refusal("lora.quantization", job, "it trains on weights as they are"))
    if refused:
        raise RehearsalRefused(refused)
    return LoraOptions(
        rank=lora.rank,
        alpha=LORA_ALPHA if lora.alpha is None else lora.alpha,
        dropout=LORA_DROPOUT if lora.dropout is None else lora.dropout,
        target_modules=lora.target_modules,
        rslora=bool(lora.rslora),
        load=adapters.load,
    )


def _default_ranks(job: Job) -> tuple[int, ...]:
    """Return the first rank of every pipeline stage (pipeline is the outermost dimension), and the last rank."""
    world, pp = job.cluster.world_size, job.parallel.pp
    stages = sorted({0, pp // 2, pp - 1})
    return tuple(dict.fromkeys([*(world // pp * stage for stage in stages), world - 1]))


def _refusal(path: str, job: Job, what: str) -> Finding:
    return Finding(
        rule="REHEARSE-UNSUPPORTED",
        severity="error",
        message=f"a rehearsal with rehearse.entry=core cannot do {path}={value_at(job, path)}: {what}; "
        "rehearse.entry=native runs the backend itself",
        fields=(path,),
        source="launch",
    )


__all__ = ["core_argv", "rehearsal", "rehearsal_plan", "trainer_options"]
