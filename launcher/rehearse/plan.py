"""Builds the launch plan of a rehearsal: the embedded trainer on megatron-core, or the backend itself on CPU."""

import dataclasses
import os
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module

from backends import CORE_BACKEND
from launcher.job import Job, Value, fields, output_dir, value_at, with_values
from launcher.job.finding import Finding, Fix
from launcher.job.task import LORA_ALPHA, LORA_DROPOUT
from launcher.mapping.backend import get_backend
from launcher.mapping.engine import translate
from launcher.pipeline import Outcome
from launcher.plan import LaunchPlan, NodePlan, PlanFile, Watch
from launcher.plan.rendezvous import torchrun
from launcher.rehearse.adapt import REHEARSED, adapted
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
from launcher.rehearse.native import NativeOnCpu, catalogue_for
from launcher.rehearse.refusal import RehearsalRefused
from launcher.rehearse.sample_data import TEXT, TOKENS, tokenizer_directory
from launcher.rehearse.weights import initial_weights

BACKEND, VERSION = CORE_BACKEND
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
        plan, watch = _native(dataclasses.replace(outcome, job=job), notes, environ), outcome.backend.watch
    else:
        plan, watch = _core(job, outcome, notes), get_backend(BACKEND).watch
    return plan, job, dataclasses.replace(watch, checkpoints=None if job.rehearse.fake_world else job.checkpoint.save)


def _core(job: Job, outcome: Outcome, notes: tuple[str, ...]) -> LaunchPlan:
    folder = output_dir(job)
    if job.task.type not in _TASKS:
        raise RehearsalRefused([_refusal("task.type", job, f"it trains {' and '.join(_TASKS)}")])
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


def _native(outcome: Outcome, notes: tuple[str, ...], environ: Mapping[str, str]) -> LaunchPlan:
    """The backend's plan, with the environment that lets its ranks run on CPU."""
    from launcher.pipeline import judge
    from launcher.rehearse.native import announcement, environment, missing_in, untested, versions_in

    job, prepare = _with_sample(dataclasses.replace(_untrained(outcome.job), runtime="native"), outcome)
    judged = judge(job, fixes=False)
    errors = [finding for finding in judged.findings if finding.severity == "error"]
    if errors:
        raise RehearsalRefused(errors)
    if outcome.job.rehearse.device is not None:
        message = "the backend's own entry point runs on the device that it finds; rehearse.device is for entry=core"
        raise RehearsalRefused([_not_native(message, "rehearse.device", works="rehearse.device=null")])
    if outcome.backend.native_cpu is None:
        raise RehearsalRefused([_refusal("rehearse.entry", outcome.job, "this backend has no native entry on CPU")])
    module = import_module(outcome.backend.native_cpu)
    native = module.NATIVE_CPU
    version_of = versions_in(outcome.job.cluster.python, native)
    lacking = missing_in(outcome.job.cluster.python, native, environ)
    if lacking:
        raise RehearsalRefused([_not_native("; ".join(lacking), "rehearse.entry")])
    of_installed = _installed_version(outcome, native)
    plan = judged.plan()
    adapt = getattr(module, "adapt_plan", None)
    if adapt is not None:
        plan = adapt(plan, judged.job)
    nodes = tuple(
        dataclasses.replace(node, env={**node.env, **environment(native, {**environ, **node.env})})
        for node in plan.nodes
    )
    return dataclasses.replace(
        plan,
        nodes=nodes,
        prepare=(*prepare, *plan.prepare),
        what=f"rehearsal: {announcement(native, version_of)}",
        notes=(*notes, *of_installed, *untested(native, version_of), *filter(None, (native.note,)), *plan.notes),
    )


def _installed_version(outcome: Outcome, native: NativeOnCpu) -> tuple[str, ...]:
    """Return a note where the arguments are those of another version than the installed one.

    Raises:
        RehearsalRefused: the installed version reads other arguments than those of the job's version.
    """
    title, python = outcome.backend.title, outcome.job.cluster.python
    found = catalogue_for(native, python)
    if found is None:
        return ()
    version, known = found
    if known != outcome.version:
        message = f"{title} {version} is installed in {python or 'this environment'}: "
        message += f"it does not read the arguments of backend.version={outcome.version}"
        raise RehearsalRefused(
            [_not_native(message, "backend.version", "cluster.python", works=f"backend.version={known}")]
        )
    return () if version == known else (f"{title} {version} is installed; its arguments are written as for {known}",)


def _not_native(message: str, *paths: str, works: str = "") -> Finding:
    return Finding(
        rule="REHEARSE-NATIVE",
        severity="error",
        message=message,
        fields=paths,
        fixes=(Fix(overrides=(works,)),) if works else (),
        source="launch",
    )


def _untrained(job: Job) -> Job:
    """Return a shrunken job without weights to load: those of the full model do not fit it."""
    if not job.rehearse.shrink or job.model.pretrained is False or job.model.num_hidden_layers is None:
        return job
    return with_values(job, {"model.pretrained": False, "model.path": None}, REHEARSED)


def _with_sample(job: Job, outcome: Outcome) -> tuple[Job, tuple[NodePlan, ...]]:
    """Return the job with the shipped text in a format that its backend reads, and the command that writes it."""
    if job.data.format not in (None, "sample", "mock") or job.data.paths:
        return job, ()
    folder = f"{output_dir(job)}/data"
    forms: dict[str, dict[str, Value]] = {
        "megatron": {"data.paths": (f"{folder}/{TOKENS}",)},
        "text": {"data.paths": (f"{folder}/{TEXT}",), "tokenizer.path": job.tokenizer.path or tokenizer_directory()},
    }
    for form, values in forms.items():
        changed = with_values(job, {"data.format": form, **values}, REHEARSED)
        findings = translate(
            outcome.backend.prepare(changed, outcome.version), outcome.backend, outcome.version
        ).findings
        if not any("data.format" in finding.fields or "data.paths" in finding.fields for finding in findings):
            writer = NodePlan(rank=0, argv=(_python(job), "-m", "launcher.rehearse.sample_data", folder))
            return changed, (writer,)
    return job, ()


def _python(job: Job) -> str:
    """Return this program's interpreter, by its path where the one on PATH is that of the ranks."""
    return sys.executable if "/" in (job.cluster.python or "") else "python"


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
