"""Estimates one job: a pure function without torch or numpy that takes a fraction of a millisecond."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

from launcher.estimate.as_run import as_run
from launcher.estimate.changes import cheapest
from launcher.estimate.check import problems, resolved
from launcher.estimate.effect import without_effect
from launcher.estimate.graphs import WHOLE, in_graph
from launcher.estimate.kin import fit_probability, range_of
from launcher.estimate.kinds import PLAIN
from launcher.estimate.layers import graph_pool, operations_of
from launcher.estimate.machine import ASSUMED, Machine, read_machine
from launcher.estimate.memory import GIB, activations, library_workspace, placeholders, stage_memory, static, step_peak
from launcher.estimate.offload import OFFLOADED
from launcher.estimate.operation import Operation, idle
from launcher.estimate.outside import outside_of
from launcher.estimate.parameters import Counts, chunk_parameters, embedding_parameters
from launcher.estimate.placement import Chunk
from launcher.estimate.profile import profile_of
from launcher.estimate.result import Estimate, Imbalance, StageMemory, StepTime
from launcher.estimate.schedule import schedule_of
from launcher.estimate.shards import with_shards
from launcher.estimate.sizes import Sizes, kernel_sizes, plain_sizes
from launcher.estimate.stages import ChunkCost, cost, parts_of
from launcher.estimate.timing import Tail, model_flops, pipeline_of, step_time, tail
from launcher.estimate.unread import unread
from launcher.job import Job, with_values
from launcher.job.finding import Finding
from launcher.pipeline_schedule.layout import CannotSplit
from launcher.pipeline_schedule.long_step import shortened
from launcher.pipeline_schedule.simulation import Event
from launcher.pipeline_schedule.simulation import timeline as events_of
from launcher.records import record
from launcher.rules.passthrough import passthrough_errors, with_passthrough


class CannotEstimate(ValueError):
    """The job could not run; `findings` holds one finding per error."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        super().__init__("; ".join(finding.message for finding in findings))
        self.findings = tuple(findings)


def estimate(job: Job, *, timeline: bool = False, changes: bool = True) -> Estimate:
    """Estimate memory and time of one optimizer step.

    Args:
        timeline: also return every step of every stage.
        changes: where the job does not fit, compute the cheapest changes that make it fit.

    Raises:
        CannotEstimate: the job is contradictory or incomplete; holds one finding per error.
    """
    found = passthrough_errors(job)
    if found:
        raise CannotEstimate(found)
    job, assumed = as_run(job)
    found = problems(job)
    if found:
        raise CannotEstimate(found)
    answer = quick(job, exact=True, timeline=timeline)
    notes = (*assumed, *answer.missing)
    answer = replace(answer, missing=(*notes, *without_effect(job, quick, notes)))
    answer = _with_range(job, answer)
    if changes:
        answer = replace(answer, imbalance=_imbalance(job, answer))
    if answer.fits is False and changes:
        return replace(answer, changes=cheapest(job, quick))
    return answer


_IMBALANCE = 1.3


def _imbalance(job: Job, answer: Estimate) -> Imbalance | None:
    """Return what unequal routing would cost; None where tokens of experts are given, limited or not spread."""
    if not any(line.startswith("routing:") for line in answer.missing) or job.parallel.ep == 1:
        return None
    other = quick(with_values(job, {"estimate.expert_imbalance": _IMBALANCE}))
    seconds = other.time.step_s if other.time else None
    return Imbalance(factor=_IMBALANCE, peak_reserved=other.fullest.peak_reserved, step_s=seconds)


def _with_range(job: Job, answer: Estimate) -> Estimate:
    """Return the answer with the errors of its nearest measured kin, which trained one model and generated nothing."""
    if uncounted(job) is not None:
        return answer
    probability = None
    if answer.capacity is not None:
        probability = fit_probability(job, answer.fullest.peak_reserved, answer.capacity - answer.outside)
    time = range_of(job, "time") if answer.time is not None else None
    return replace(answer, memory_range=range_of(job, "memory"), time_range=time, fit_probability=probability)


def estimate_many(jobs: Iterable[Job]) -> list[Estimate | CannotEstimate]:
    """Estimate many jobs, for searches; a job that cannot run yields a `CannotEstimate` instead of raising it.

    Of what the backend makes of a job (`as_run`, which takes milliseconds), only the arguments in `backend.args` count.
    """
    answers: list[Estimate | CannotEstimate] = []
    for job in map(with_passthrough, jobs):
        found = problems(job)
        answers.append(CannotEstimate(found) if found else quick(job))
    return answers


@record()
class _Stage:
    counts: Counts
    costs: tuple[ChunkCost, ...]
    adapters: int
    placeholders: float
    pool: float
    idle: frozenset[str]


# Number of steps over all stages above which a single estimate also extrapolates the schedule.
_MOST_EVENTS = 200_000


def quick(job: Job, *, exact: bool = False, timeline: bool = False, most: int | None = None) -> Estimate:
    """Estimate a job that is known to be valid (`launcher.estimate.check.problems` is empty).

    Args:
        exact: simulate every micro-batch, also those in the periodic middle of a long step.
        timeline: return every step of every stage.
        most: bytes of a device, everything included; where more are needed, time is not estimated.
    """
    split = resolved(job)
    if isinstance(split, CannotSplit):
        raise split
    sizes, assumed, placed = split.sizes, split.assumed, split.stages
    machine, unmeasured = read_machine(job, experts=sizes.experts > 0)
    if WHOLE in sizes.captured:
        machine = in_graph(machine)
    kernels = kernel_sizes(sizes)
    stages = [_stage(kernels, machine, chunks) for chunks in placed]
    if sizes.fsdp:
        stages = _with_shards(sizes, kernels, machine, placed, stages)
    memories = _memories(job, sizes, stages)
    steps = 2 * sizes.pp * sizes.vpp * sizes.micro_batches
    whole = timeline or (exact and steps <= _MOST_EVENTS)
    timed = machine.known and (most is None or _needs(job, sizes, memories) <= most)
    time = _time(sizes, machine, stages, whole=whole) if timed else None
    costs = [stage.costs for stage in stages]
    events = events_of(pipeline_of(sizes, machine, costs)) if timeline and machine.known else []
    counts = Counts.sum(stage.counts for stage in stages)
    missing = [*assumed, *unmeasured, *_by_formula(sizes), *_simplified(job, sizes), *_idle(job, stages), *unread(job)]
    return _answer(job, sizes, machine, memories, time, counts, missing, events, stages)


def _needs(job: Job, sizes: Sizes, memories: tuple[StageMemory, ...]) -> int:
    """Return the bytes of the fullest device, everything included."""
    outside, _ = outside_of(job, sizes, profile_of(job))
    return max(stage.peak_reserved for stage in memories) + round(outside * GIB)


@lru_cache(maxsize=512)
def _stage(sizes: Sizes, machine: Machine, chunks: tuple[Chunk, ...]) -> _Stage:
    costs = [
        cost(parts_of(sizes, machine, chunk, _covered(sizes, virtual, len(chunks))))
        for virtual, chunk in enumerate(chunks)
    ]
    counts, adapters, kept = _holds(plain_sizes(sizes), machine, chunks)
    nothing = frozenset[str]()
    if sizes.recompute_modules:
        nothing = idle(_operations(plain_sizes(sizes), machine, chunks), sizes.recompute_modules)
    return _Stage(
        counts=counts,
        costs=tuple(costs),
        adapters=adapters,
        placeholders=kept,
        pool=_pool(sizes, machine, chunks),
        idle=nothing,
    )


def _pool(sizes: Sizes, machine: Machine, chunks: tuple[Chunk, ...]) -> float:
    """Return the bytes that CUDA graphs of parts of a stage reserve beside what is kept."""
    if not sizes.captured or WHOLE in sizes.captured:
        return 0.0  # one graph holds all kernels of the pipeline
    kinds = {kind for chunk in chunks for kind in chunk.kinds}
    return max((graph_pool(sizes, machine, kind) for kind in kinds), default=0.0)


def _with_shards(
    sizes: Sizes, kernels: Sizes, machine: Machine, placed: tuple[tuple[Chunk, ...], ...], stages: list[_Stage]
) -> list[_Stage]:
    """Return the stages with what FSDP gathers and reduces in each micro-batch; equal stages stay one object."""
    done: dict[int, _Stage] = {}
    for chunks, stage in zip(placed, stages, strict=True):
        if id(stage) in done:
            continue
        costs = []
        for virtual, (chunk, made) in enumerate(zip(chunks, stage.costs, strict=True)):
            layers = replace(chunk, embedding=False, mtp=0, norm=False, head=False)
            kept = cost(parts_of(kernels, machine, layers, _covered(kernels, virtual, len(chunks)))).keeps
            costs.append(with_shards(sizes, machine, chunk, made, kept))
        done[id(stage)] = replace(stage, costs=tuple(costs))
    return [done[id(stage)] for stage in stages]


def _covered(sizes: Sizes, virtual: int, chunks: int) -> int | None:
    """Return the layers of a chunk that method `block` recomputes, where the number per stage is dealt round-robin.

    Source: layer_idx * vpp_size + vpp_rank < recompute_num_layers, mindspeed/core/memory/common.py:190 (core 0.12.1).
    """
    return max(0, -(-(sizes.recompute_layers - virtual) // chunks)) if sizes.per_stage else None


@lru_cache(maxsize=512)
def _holds(sizes: Sizes, machine: Machine, chunks: tuple[Chunk, ...]) -> tuple[Counts, int, float]:
    """Return a stage's parameters, those of its adapters, and bytes of placeholder weight gradients."""
    counts = Counts.sum(chunk_parameters(sizes, chunk) for chunk in chunks)
    adapters = _adapters(sizes, machine, chunks) if sizes.lora else 0
    return counts, adapters, placeholders(sizes, _operations(sizes, machine, chunks))


def _adapters(sizes: Sizes, machine: Machine, chunks: tuple[Chunk, ...]) -> int:
    """Count LoRA parameters on a rank: a pair of low-rank matrices for each linear layer of the dense path."""
    total = 0
    for chunk in chunks:
        for kind in chunk.kinds:
            for op in operations_of(sizes, machine, kind):
                if op.weight is not None and op.name != "router" and not op.name.startswith("expert"):
                    total += sizes.lora * sum(op.weight)
    return total


def _operations(sizes: Sizes, machine: Machine, chunks: tuple[Chunk, ...]) -> list[Operation]:
    found: list[Operation] = []
    for each in {kind for chunk in chunks for kind in chunk.kinds}:
        found += operations_of(sizes, machine, each)
    return found


def _memories(job: Job, sizes: Sizes, stages: list[_Stage]) -> tuple[StageMemory, ...]:
    one = job.hardware.workspace_gib if job.hardware.workspace_gib is not None else ASSUMED["workspace_gib"]
    small = job.hardware.small_buffers_gib
    library = library_workspace(sizes, one * GIB, None if small is None else small * GIB)
    factor = job.estimate.mem_factor if profile_of(job).fragments else 1.0
    memories: list[StageMemory] = []
    schedule = shortened(schedule_of(sizes))
    parts, update, before = (0.0, 0.0, 0.0), 0.0, None
    for index, stage in enumerate(stages):
        if stage is not before:
            parts, before = static(sizes, stage.counts, stage.adapters), stage
            update = step_peak(sizes, stage.counts, stage.adapters)
        held = activations(schedule, index, stage.costs, float(sizes.act)) + stage.pool
        # Memory of graphs is not the update's to use.
        held = held + update if sizes.captured else max(held, update)
        memories.append(stage_memory(index, parts, held, library + stage.placeholders, factor))
    return tuple(memories)


def _time(sizes: Sizes, machine: Machine, stages: list[_Stage], *, whole: bool) -> StepTime:
    costs = [stage.costs for stage in stages]
    tails: list[Tail] = []
    for stage in {id(stage): stage for stage in stages}.values():
        hidden_by = sum(chunk.backward for chunk in stage.costs)
        tails.append(tail(sizes, machine, stage.counts, stage.adapters, hidden_by))
    return step_time(sizes, machine, costs, tails, whole=whole)


# Token mixers that are estimated by formula only.
_BY_FORMULA = {
    "linear": "model.experimental_attention_variant: gated delta net",
    "sparse": "model.experimental_attention_variant: sparse attention, as kernels that compute chosen keys only",
    "csa": "model.compress_ratios: compressed attention, as attention over all keys, and one residual stream",
    "mamba": "model.mamba: Mamba-2",
}


def _by_formula(sizes: Sizes) -> list[str]:
    """Return a note for each kind of layer whose memory and time have not been compared with a run."""
    if sizes.variants is PLAIN:
        return []
    mixers = {sizes.kind(index).mixer for index in range(sizes.layers)}
    return [
        f"{what}; parameters as built, memory and time by formula, not measured against a run"
        for mixer, what in _BY_FORMULA.items()
        if mixer in mixers
    ]


def uncounted(job: Job) -> str | None:
    """Return what a job's task needs beside the trained model and is not part of the estimate; None: nothing."""
    if job.task.type in ("pretrain", "sft"):
        return None
    return (
        f"task.type {job.task.type}: counted like one plain sequence each, without a reference model, a teacher, "
        "rewards and generation"
    )


def _simplified(job: Job, sizes: Sizes) -> list[str]:
    notes = []
    given = job.hardware.node_devices
    if given is not None and given > job.cluster.devices_per_node and _is_set(job, "hardware.node_devices"):
        notes.append(
            f"hardware.node_devices: {given} counts as {job.cluster.devices_per_node}, the devices of a node; links "
            f"that span nodes are hardware.domain_devices={given}"
        )
    beside = uncounted(job)
    if beside is not None:
        notes.append(beside)
    if job.lora.rank and job.lora.target_modules and "all-linear" not in job.lora.target_modules:
        notes.append("lora.target_modules: counted as every product of attention and dense networks")
    strange = [name for name in job.offload.modules if name not in OFFLOADED]
    if strange:
        notes.append(f"offload.modules: does not change the estimate for {', '.join(strange)}, counted as kept")
    if (sizes.offload_modules or sizes.offload_layers) and job.hardware.host_link_gbs is None:
        notes.append(f"hardware.host_link_gbs: {ASSUMED['host_link_gbs']:g} (not measured)")
    if _shorter_samples(job):
        notes.append("batch.seq_length: every sequence is counted at full length; shorter samples need less")
    return notes


def _is_set(job: Job, path: str) -> bool:
    """Return whether the user wrote a field on the command line: what a hardware file says is no mistake of theirs."""
    origin = job.origins.get(path)
    return origin is not None and origin.kind == "override"


def _idle(job: Job, stages: list[_Stage]) -> list[str]:
    """Return a note where a module to recompute is not in the model, or is part of a kernel that recomputes."""
    if not stages[0].idle:
        return []
    nowhere = frozenset.intersection(*(stage.idle for stage in stages))
    wanted = {"activation": "recompute.activation", "layernorm": "recompute.norm"} if nowhere else {}
    set_by = [path for name, path in wanted.items() if name in nowhere and name not in job.recompute.modules]
    listed = [name for name in job.recompute.modules if name in nowhere]
    notes = [f"{path}: does not change the estimate (nothing in this model to recompute)" for path in set_by]
    if listed:
        names = ", ".join(listed)
        notes.append(
            f"recompute.modules: does not change the estimate for {names} (nothing in this model to recompute)"
        )
    return notes


def _shorter_samples(job: Job) -> bool:
    """Return whether samples may be shorter than the sequence length: instruction data that is not packed."""
    return bool(job.batch.variable_seq_lengths) or (job.task.type != "pretrain" and not job.batch.packing)


def _answer(
    job: Job,
    sizes: Sizes,
    machine: Machine,
    memories: tuple[StageMemory, ...],
    time: StepTime | None,
    counts: Counts,
    missing: list[str],
    events: list[Event],
    stages: list[_Stage],
) -> Estimate:
    memory = job.hardware.memory_gib
    profile = profile_of(job)
    reserved, assumed = outside_of(job, sizes, profile)
    outside = round(reserved * GIB)
    capacity = round(memory * GIB) if memory is not None else None
    if capacity is None:
        missing = [*missing, "hardware.memory_gib: unknown, so whether the job fits is not judged"]
    elif assumed:
        missing = [*missing, assumed]
    if job.hardware.workspace_gib is None:
        missing = [*missing, f"hardware.workspace_gib: {ASSUMED['workspace_gib']:g} (one kernel library)"]
    peak = max(stage.peak_reserved for stage in memories)
    if not machine.known:
        missing = [*missing, "hardware.bf16_tflops: unknown, so time is not estimated"]
    tokens = sizes.dp * sizes.mbs * sizes.micro_batches * sizes.seq
    active = counts.active - (0 if sizes.tied else embedding_parameters(sizes).total)
    flops = model_flops(sizes, active) * tokens
    speed = tokens / time.step_s / sizes.world if time else None
    achieved = flops / time.step_s / sizes.world if time else None
    price = job.hardware.price
    return Estimate(
        fits=None if capacity is None else peak + outside <= capacity,
        stages=memories,
        capacity=capacity,
        outside=outside,
        time=time,
        mfu=achieved / machine.peak if achieved else None,
        tflops_per_device=achieved / 1e12 if achieved else None,
        tokens_per_s_per_device=speed,
        cost_per_billion_tokens=price * 1e9 / speed / 3600 if price is not None and speed else None,
        parameters={
            "total": counts.total,
            "active": counts.active,
            "per_stage": [stage.counts.rank for stage in stages],
        },
        missing=tuple(missing),
        timeline=tuple(events),
        profile=profile,
    )


def one_line(job: Job) -> str | None:
    """Return the estimate in one line; None where the job or its hardware lacks values.

    >>> one_line(job)  # doctest: +SKIP
    'fits: 61.2 of 80.0 GiB on stage 0 · 8.9 s/step'
    """
    if job.hardware.memory_gib is None and job.hardware.bf16_tflops is None:
        return None
    job, _ = as_run(job)
    if problems(job):
        return None
    answer = quick(job)
    fullest = answer.fullest
    used = f"{(fullest.peak_reserved + answer.outside) / GIB:.1f}"
    where = f" on stage {fullest.stage}" if len(answer.stages) > 1 else ""
    if answer.capacity is None:
        line = f"needs {used} GiB{where}"
    else:
        verdict = "fits" if answer.fits else "does not fit"
        line = f"{verdict}: {used} of {answer.capacity / GIB:g} GiB{where}"
    if answer.time is not None:
        line += f" · {answer.time.step_s:.3g} s/step"
    return line


# Relative overestimate of peak memory on real runs of models above a billion parameters.
_OWN_ERROR = 0.03


def refusal(job: Job) -> Finding | None:
    """Return why a job must not start: it exceeds memory by more than the estimate's error.

    None where it may fit, where it cannot be estimated, or with `estimate.enforce=false`.
    """
    if not job.estimate.enforce or job.hardware.memory_gib is None:
        return None
    job, _ = as_run(job)
    if problems(job):
        return None
    answer = quick(job)
    fullest, capacity = answer.fullest, answer.capacity or 0
    # The allocator's reserve can shrink and samples may be short: only memory that is certainly needed counts.
    tensors = fullest.peak_allocated - (fullest.activations if _shorter_samples(job) else 0)
    if tensors * (1 - _OWN_ERROR) <= capacity:
        return None
    return Finding(
        rule="EST-FITS",
        severity="error",
        message=f"stage {fullest.stage} needs {tensors / GIB:.1f} GiB of tensors, the device has "
        f"{capacity / GIB:g}: launch estimate names changes that make it fit; estimate.enforce=false starts it anyway",
        fields=("hardware.memory_gib", "estimate.enforce"),
        source="launch estimate",
    )
