"""Checks that a job can be estimated: the layout rules, and rules that apply to estimates only."""

from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import cache, lru_cache

from launcher.estimate.placement import Chunk, place
from launcher.estimate.sizes import Sizes, read_sizes
from launcher.estimate.topology_check import contradictions
from launcher.job import Job
from launcher.job.finding import Finding, Fix
from launcher.job.hardware import Hardware
from launcher.mapping.backend import get_backend
from launcher.mapping.engine import translate
from launcher.pipeline_schedule.dualpipev import fewest_micro_batches
from launcher.pipeline_schedule.layout import MOST_LAYERS, CannotSplit
from launcher.pipeline_schedule.order import DUALPIPEV
from launcher.records import record
from launcher.rules.registry import RULES, Check, Rule, RuleContext, Violation, lowered

# Rules that apply to every backend and that the estimate relies on.
_PREFIXES = (
    "PAR-",
    "BATCH-",
    "RC-FULL",
    "RC-SELECTIVE",
    "MOE-TOPK",
    "MOE-EP",
    "MLA-",
    "FP8-",
    "FP4-",
    "REQ-MODEL",
    "REQ-BATCH",
    "SENSE-HEADS",
    "SENSE-VOCAB",
)
_HARDWARE = tuple(field.name for field in fields(Hardware))
_SHARES = tuple(name for name in _HARDWARE if name.endswith(("_efficiency", "_share")))
_POSITIVE = (
    *(name for name in _HARDWARE if name.endswith("_tflops")),
    *("memory_gib", "memory_bandwidth_gbs", "intra_node_gbs", "domain_gbs", "inter_node_gbs", "spine_gbs"),
    *("shared_link_gbs", "host_link_gbs"),
    *_SHARES,
)
_OWN: list[Rule] = []


@record()
class Resolved:
    """A resolved job: its sizes, the assumptions made for them, and the chunks of every stage."""

    sizes: Sizes
    assumed: tuple[str, ...]
    stages: tuple[tuple[Chunk, ...], ...]


_LAST: list[tuple[Job, Resolved | CannotSplit]] = []


def resolved(job: Job) -> Resolved | CannotSplit:
    """Return the resolved job, or why its layers cannot be split; the last result is cached by identity."""
    if _LAST and _LAST[0][0] is job:
        return _LAST[0][1]
    answer: Resolved | CannotSplit
    try:
        sizes, assumed = read_sizes(job)
        answer = Resolved(sizes=sizes, assumed=tuple(assumed), stages=place(job, sizes))
    except CannotSplit as error:
        answer = error
    _LAST[:] = [(job, answer)]
    return answer


# Attention FLOPs include pairs that a causal mask skips, so the efficiency may exceed one.
_MOST_ATTENTION = 2.0
# Shares have no bound on a CPU: its caches are faster than its memory, and `launch calibrate` measures its peaks.
_DATA_SHEET_DEVICES = ("cuda", "npu")
_JUDGED: list[tuple[Hardware, tuple[list[Violation], list[Violation]]]] = []


def _of_hardware(hardware: Hardware) -> tuple[list[Violation], list[Violation]]:
    """Return violations for zero values and for efficiencies above one; the last result is cached by identity."""
    if _JUDGED and _JUDGED[0][0] is hardware:
        return _JUDGED[0][1]
    zero, above = [], []
    for name in _POSITIVE:
        if getattr(hardware, name) == 0:
            zero.append(
                Violation(
                    message=f"hardware.{name} is 0: must be above 0",
                    fields=(f"hardware.{name}",),
                    works=(f"hardware.{name}=null",),
                )
            )
    for name in _SHARES:
        value, most = getattr(hardware, name), _MOST_ATTENTION if name.startswith("attention") else 1.0
        if value is not None and value > most and hardware.device in _DATA_SHEET_DEVICES:
            message = f"hardware.{name} {value:g} is above {most:g}: it is a share of the peak"
            works = (f"hardware.{name}={most:g}",)
            above.append(Violation(message=message, fields=(f"hardware.{name}",), works=works))
    _JUDGED[:] = [(hardware, (zero, above))]
    return zero, above


# Rules that duplicate the findings of an earlier rule.
_FOLLOWS = frozenset({"EST-STAGES", "EST-SCHEDULE", "EST-RECOMPUTE"})


def _rule(id: str, source: str) -> Callable[[Check], Check]:
    """Declare a rule that applies to estimates only; `launch check` does not apply it."""

    def declare(check: Check) -> Check:
        _OWN.append(Rule(id=id, check=check, severity="error", source=source, doc=check.__doc__ or ""))
        return check

    return declare


@_rule("EST-HARDWARE", source="launch estimate")
def hardware_is_usable(context: RuleContext) -> Iterator[Violation]:
    """Memory, peaks, bandwidths and efficiencies of the hardware must be above zero where they are given."""
    yield from _of_hardware(context.job.hardware)[0]


@_rule("EST-TOPOLOGY", source="launch estimate")
def levels_agree(context: RuleContext) -> Iterator[Violation]:
    """Host, domain, rail and spine consist of whole units of the level inside, divide the job, and are no faster."""
    hardware, cluster = context.job.hardware, context.job.cluster
    yield from _contradictions(hardware, cluster.devices_per_node, cluster.world_size)
    path = "hardware.domain_used_devices"
    # A user who only unsets the domain of a hardware file need not unset this, too.
    by_user = hardware.domain_used_devices is not None and context.job.origin(path).kind == "override"
    if by_user and hardware.domain_devices is None:
        message = f"{path} has no effect without hardware.domain_devices"
        yield Violation(message=message, fields=(path, "hardware.domain_devices"), works=(f"{path}=null",))


@lru_cache(maxsize=64)
def _contradictions(hardware: Hardware, node: int, world: int) -> tuple[Violation, ...]:
    return tuple(contradictions(hardware, node, world))


@_rule("EST-MEM-FACTOR", source="launch estimate")
def factor_is_a_share(context: RuleContext) -> Iterator[Violation]:
    """estimate.mem_factor is a share of memory and estimate.attention_sparsity a share of attention."""
    options = context.job.estimate
    if options.mem_factor > 1:
        message = f"estimate.mem_factor {options.mem_factor:g} is above 1: it is the share that tensors fill"
        yield Violation(message=message, fields=("estimate.mem_factor",), works=("estimate.mem_factor=1",))
    if options.attention_sparsity >= 1:
        message = f"estimate.attention_sparsity {options.attention_sparsity:g}: must be below 1"
        works = ("estimate.attention_sparsity=0",)
        yield Violation(message=message, fields=("estimate.attention_sparsity",), works=works)


@_rule("EST-SHARES", source="launch estimate")
def shares_are_at_most_one(context: RuleContext) -> Iterator[Violation]:
    """Efficiencies and the offload fraction are at most 1, and the capacity factor of experts is above 0."""
    job = context.job
    yield from _of_hardware(job.hardware)[1]
    fraction = job.offload.optimizer_fraction
    if fraction is not None and fraction > 1:
        message = f"offload.optimizer_fraction {fraction:g} is above 1: it is a share of the optimizer"
        works = ("offload.optimizer_fraction=1",)
        yield Violation(message=message, fields=("offload.optimizer_fraction",), works=works)
    if job.model.is_moe and job.estimate.expert_imbalance > max(1, job.parallel.ep):
        message = (
            f"estimate.expert_imbalance {job.estimate.expert_imbalance:g} is above parallel.ep {job.parallel.ep}: one "
        )
        message += "device then has the tokens of all"
        works = (f"estimate.expert_imbalance={max(1, job.parallel.ep)}",)
        yield Violation(message=message, fields=("estimate.expert_imbalance", "parallel.ep"), works=works)
    if job.model.is_moe and job.moe.capacity_factor == 0:
        message = "moe.capacity_factor is 0: no expert would get a token"
        yield Violation(message=message, fields=("moe.capacity_factor",), works=("moe.capacity_factor=null",))


@_rule("EST-STAGES", source="megatron-core 0.16.1 transformer_block.py get_num_layers_to_build")
def layers_fill_stages(context: RuleContext) -> Iterator[Violation]:
    """The layers must divide evenly over stages and chunks, or an uneven split must place all of them."""
    job = context.job
    for name in ("first_stage_layers", "last_stage_layers"):
        if getattr(job.parallel, name) == 0 and job.parallel.pp > 1:
            message = f"parallel.{name} is 0: a stage without layers needs parallel.layout"
            yield Violation(message=message, fields=(f"parallel.{name}",))
    if None in (job.model.num_hidden_layers, job.model.hidden_size, job.batch.seq_length):
        return
    if (job.model.num_hidden_layers or 0) > MOST_LAYERS:
        message = f"model.num_hidden_layers {job.model.num_hidden_layers:,} is more than {MOST_LAYERS:,}"
        yield Violation(message=message, fields=("model.num_hidden_layers",))
        return
    split = resolved(job)
    if isinstance(split, CannotSplit):
        yield Violation(message=str(split), fields=split.fields)


@_rule("EST-SCHEDULE", source="launcher/pipeline_schedule/dualpipev.py")
def schedule_has_its_chunks(context: RuleContext) -> Iterator[Violation]:
    """DualPipeV runs two chunks on each of several stages, and at least 2 x pp - 1 micro-batches."""
    job = context.job
    size, dp, parallel = job.batch.global_batch_size, job.parallel.dp, job.parallel
    if parallel.schedule != DUALPIPEV:
        return
    if parallel.pp < 2 or parallel.vpp != 2:
        message = f"dualpipev needs parallel.vpp 2 and several stages, not vpp {parallel.vpp or 1} and pp {parallel.pp}"
        fields = ("parallel.schedule", "parallel.vpp", "parallel.pp")
        works = ("parallel.vpp=2",) if parallel.pp > 1 else ("parallel.schedule=1f1b",)
        yield Violation(message=message, fields=fields, works=works)
    elif size and dp and size // (job.batch.micro_batch_size * dp) < fewest_micro_batches(parallel.pp):
        count, fewest = size // (job.batch.micro_batch_size * dp), fewest_micro_batches(parallel.pp)
        message = f"{count} micro-batches are fewer than the {fewest} that dualpipev needs with pp {parallel.pp}"
        yield Violation(message=message, fields=("batch.global_batch_size", "batch.micro_batch_size", "parallel.pp"))


@_rule("EST-SEQUENCE", source="megatron-core 0.16.1 get_batch_on_this_cp_rank, sequence parallel")
def sequence_divides(context: RuleContext) -> Iterator[Violation]:
    """Each rank gets an equal share of the sequence."""
    job = context.job
    parts = job.parallel.cp * (job.parallel.tp if job.parallel.sequence_parallel else 1)
    if job.batch.seq_length is not None and job.batch.seq_length % parts:
        yield Violation(
            message=f"seq_length {job.batch.seq_length} cannot be shared equally by {parts} ranks (cp × tp)",
            fields=("batch.seq_length", "parallel.cp", "parallel.tp"),
        )


@_rule("EST-VOCAB", source="launch estimate")
def vocabulary_is_known(context: RuleContext) -> Iterator[Violation]:
    """The vocabulary size must be set: a backend takes it from the tokenizer, which the estimate does not load."""
    job = context.job
    if job.model.vocab_size is None and job.tokenizer.padded_vocab_size is None:
        named = f" ({job.tokenizer.path})" if job.tokenizer.path else ""
        yield Violation(
            message=f"model.vocab_size is not set: it is the tokenizer's{named}, which is not read here",
            fields=("model.vocab_size", "tokenizer.padded_vocab_size"),
            asks=("model.vocab_size=N",),
        )


@_rule("EST-RECOMPUTE", source="megatron-core 0.16.1 transformer_block.py _checkpointed_forward")
def recompute_fits_chunk(context: RuleContext) -> Iterator[Violation]:
    """recompute.num_layers counts layers of one chunk (or stage) and cannot exceed their number."""
    job = context.job
    number = job.recompute.num_layers
    if number is None or job.recompute.granularity != "full" or job.recompute.method == "block":
        return  # method block recomputes at most all layers
    if job.model.num_hidden_layers is None:
        return
    split = resolved(job)
    if isinstance(split, CannotSplit):
        return
    sizes, stages = split.sizes, split.stages
    if sizes.per_stage:
        most = max(sum(len(chunk.kinds) for chunk in stage) for stage in stages)
    else:
        most = max(len(chunk.kinds) for stage in stages for chunk in stage)
    if number > most:
        yield Violation(
            message=f"recompute.num_layers {number} is more than the {most} layers of the largest "
            f"{'stage' if sizes.per_stage else 'chunk'}",
            fields=("recompute.num_layers", "parallel.pp", "parallel.vpp"),
        )


def estimate_rules() -> tuple[Rule, ...]:
    """Return the rules that apply to estimates only."""
    return tuple(_OWN)


def problems(job: Job) -> list[Finding]:
    """Return the errors that make an estimate meaningless, in the order of the rules; empty for a valid job."""
    context = RuleContext(job=job)
    found: list[Finding] = []
    complete = True
    for declared in _rules():
        if not complete and not declared.id.startswith("REQ-"):
            break
        if found and declared.id in _FOLLOWS:
            continue
        for fault in declared.check(context):
            if _is_lowered(declared, job):
                break
            complete = complete and not declared.id.startswith("REQ-")
            found.append(
                Finding(
                    rule=declared.id,
                    severity="error",
                    message=fault.message,
                    fields=fault.fields,
                    fixes=tuple(Fix(overrides=(each,) if isinstance(each, str) else each) for each in fault.works),
                    asks=fault.asks,
                    source=declared.source,
                )
            )
    return found


def _is_lowered(declared: Rule, job: Job) -> bool:
    """Return whether the job's backend runs what a rule refuses: its check has a warning, and the field no effect."""
    if job.backend.name is None:
        return False
    from launcher.rules.engine import load
    from launcher.rules.native import rule_context

    backend = get_backend(job.backend.name)
    version = backend.version(job.backend.version)
    load(backend.rules)
    prepared = backend.prepare(job, version)
    native = translate(prepared, backend, version).native
    return bool(lowered(declared, rule_context(prepared, backend, version, native)))


@cache
def _rules() -> tuple[Rule, ...]:
    """Return the rules that apply, requirements first; the rules of `launcher.rules` are loaded once."""
    from launcher.rules.engine import load

    load(())
    chosen = [
        each
        for each in RULES.values()
        if each.severity == "error" and each.id.startswith(_PREFIXES) and not each.backends
    ]
    return (*sorted(chosen, key=lambda each: not each.id.startswith("REQ-")), *_OWN)
