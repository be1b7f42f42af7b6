"""Arithmetic of batches, schedule, recompute, routing and attention."""

from collections.abc import Iterator

from launcher.job.model import Model
from launcher.mapping.backend import get_backend, is_backend
from launcher.rules.registry import RuleContext, Violation, rule
from launcher.terminal import with_verb

# Where megatron-core and the models score groups of experts; see `group_scores_differ`.
GROUP_SCORES = "megatron-core 0.16.1 moe_utils.py:553; Hugging Face modeling_deepseek_v2.py, modeling_deepseek_v3.py"

DROPPED_BY_POSITION = (
    "Which tokens are dropped by position is left to torch.topk, which does not keep the order of equal values: not "
    "the last ones, and other ones on another device or release of torch."
)
"""What `moe.token_drop_policy=position` does on Megatron-core 0.12 and 0.16."""

MEAN_OF_RANK = (
    "Each context-parallel rank divides the loss by its own number of tokens (core 0.12: by that of all ranks), so "
    "tokens count differently where the loss mask leaves the ranks unequal numbers: where all learned tokens are on "
    "one rank, gradients are 1/cp of those of the loss."
)
"""How Megatron-core 0.16 averages the loss under context parallelism without the loss per token."""

MEAN_OF_RANK_MESSAGE = (
    "with a loss mask: each rank takes the mean of its own tokens, so the loss is another than without context "
    "parallelism"
)

BALANCED_PER_TOKEN = (
    "With the loss per token the balancing loss is multiplied by all tokens of a micro-batch and divided by those that "
    "have a loss."
)
"""What Megatron-core 0.12 and 0.16 do with the loss of routers and `precision.calculate_per_token_loss`."""

BALANCED_PER_TOKEN_MESSAGE = (
    "with the loss per token: the balancing loss counts more by tokens over tokens with a loss, where the loss mask "
    "leaves some out"
)

_CONFIG = "megatron-core 0.16.1 transformer_config.py"


@rule(
    "BATCH-GLOBAL",
    source="megatron-core 0.16.1 num_microbatches_calculator.py; ms-swift 4.6 megatron_args.py:1002",
    reads="job.batch.global_batch_size job.parallel.dp job.batch.micro_batch_size",
)
def global_batch_divides(context: RuleContext) -> Iterator[Violation]:
    """The global batch is a whole number of micro-batches on every data-parallel rank."""
    job = context.job
    size, dp = job.batch.global_batch_size, job.parallel.dp
    if size is None or dp is None or size % (job.batch.micro_batch_size * dp) == 0:
        return
    yield Violation(
        message=f"global_batch_size {size} is not divisible by micro_batch_size {job.batch.micro_batch_size} × dp {dp}",
        fields=("batch.global_batch_size", "batch.micro_batch_size", "cluster.nodes", "cluster.devices_per_node"),
    )


@rule(
    "BATCH-VPP",
    source="megatron-core 0.12.1 schedules.py:777-800, 0.16.1 schedules.py:995-1017",
    reads="job.batch.global_batch_size job.parallel.dp job.parallel.vpp job.parallel.pp "
    "job.batch.micro_batch_size job.parallel.microbatch_group_size job.parallel.schedule",
)
def micro_batches_fill_stages(context: RuleContext) -> Iterator[Violation]:
    """The interleaved schedule runs micro-batches in groups, of pp by default; each needs at least pp of them."""
    job = context.job
    size, dp, vpp, pp = job.batch.global_batch_size, job.parallel.dp, job.parallel.vpp, job.parallel.pp
    if size is None or dp is None or vpp is None or vpp == 1 or pp == 1 or size % (job.batch.micro_batch_size * dp):
        return
    if job.parallel.schedule == "dualpipev":
        return
    count, group = size // (job.batch.micro_batch_size * dp), job.parallel.microbatch_group_size or pp
    fields = ("batch.global_batch_size", "batch.micro_batch_size", "parallel.vpp", "parallel.microbatch_group_size")
    if not pp <= group <= count:
        yield Violation(
            message=f"microbatch_group_size {group} must be from pp {pp} to the {count} micro-batches of a step",
            fields=fields,
        )
    elif 0 < count % group < pp:
        yield Violation(
            message=f"{count} micro-batches in groups of {group} leave a remainder of {count % group}: "
            f"the interleaved schedule needs 0 or at least pp {pp}",
            fields=fields,
        )


@rule(
    "SEQ-POSITIONS",
    source="Megatron-LM core_v0.12.1 arguments.py:696",
    reads="job.batch.seq_length job.model.max_position_embeddings",
    covers=("model.max_position_embeddings",),
)
def sequence_fits_positions(context: RuleContext) -> Iterator[Violation]:
    """A sequence must not be longer than the model's maximum number of positions."""
    length, positions = context.job.batch.seq_length, context.job.model.max_position_embeddings
    if length is not None and positions is not None and length > positions:
        yield Violation(
            message=f"seq_length {length} is above max_position_embeddings {positions}",
            fields=("batch.seq_length", "model.max_position_embeddings"),
        )


@rule("LR-ORDER", source="Megatron-LM core_v0.12.1 arguments.py:702", reads="job.optimizer.lr job.optimizer.min_lr")
def min_lr_is_below_lr(context: RuleContext) -> Iterator[Violation]:
    """The decay ends at min_lr, which cannot be above lr."""
    optimizer = context.job.optimizer
    if optimizer.lr is not None and optimizer.min_lr > optimizer.lr:
        yield Violation(
            message=f"min_lr {optimizer.min_lr:g} is above lr {optimizer.lr:g}",
            fields=("optimizer.min_lr", "optimizer.lr"),
        )


@rule(
    "LR-WARMUP-TWICE",
    source="Megatron-LM core_v0.12.1 arguments.py:634",
    reads="job.schedule.lr_warmup_iters job.schedule.lr_warmup_fraction",
)
def warmup_has_one_setting(context: RuleContext) -> Iterator[Violation]:
    """Warm-up is given in iterations or as a share, not both; a backend would silently take the share."""
    schedule = context.job.schedule
    if schedule.lr_warmup_iters and schedule.lr_warmup_fraction:
        names = ("schedule.lr_warmup_iters", "schedule.lr_warmup_fraction")
        yield Violation(message=f"{names[0]} and {names[1]} are both set: keep one", fields=names)


@rule(
    "LR-WARMUP-LENGTH",
    source="Megatron-core optimizer_param_scheduler.py: warm-up < decay steps",
    reads="job.schedule.lr_warmup_iters job.schedule.lr_decay_iters job.schedule.train_iters "
    "job.schedule.lr_warmup_samples job.schedule.lr_decay_samples job.schedule.train_samples "
    "job.schedule.lr_warmup_fraction",
)
def warm_up_ends(context: RuleContext) -> Iterator[Violation]:
    """Warm-up must end before the decay does."""
    schedule = context.job.schedule
    for unit, warmup, end in (
        ("iters", schedule.lr_warmup_iters, schedule.lr_decay_iters or schedule.train_iters),
        ("samples", schedule.lr_warmup_samples, schedule.lr_decay_samples or schedule.train_samples),
    ):
        if warmup and end is not None and warmup >= end:
            unit_name, place = ("iterations", f"step {end}") if unit == "iters" else ("sequences", f"sequence {end}")
            yield Violation(
                message=f"warm-up of {warmup} {unit_name} does not end before {place}",
                fields=(f"schedule.lr_warmup_{unit}", f"schedule.train_{unit}"),
            )
    if schedule.lr_warmup_fraction is not None and schedule.lr_warmup_fraction >= 1:
        yield Violation(
            message=f"lr_warmup_fraction {schedule.lr_warmup_fraction:g} must be below 1",
            fields=("schedule.lr_warmup_fraction",),
        )


@rule(
    "RC-FULL-METHOD",
    source=f"{_CONFIG}:1154; core_v0.12.1:697",
    reads="job.recompute.granularity job.recompute.method job.recompute.num_layers",
)
def full_recompute_names_method(context: RuleContext) -> Iterator[Violation]:
    """Full recompute needs a method and the number of layers."""
    recompute = context.job.recompute
    if recompute.granularity != "full":
        return
    for name in ("method", "num_layers"):
        if getattr(recompute, name) is None:
            yield Violation(message=f"recompute.granularity=full needs recompute.{name}", fields=(f"recompute.{name}",))


@rule(
    "RC-FULL-LAYERS",
    source="Megatron-LM core_v0.12.1 transformer_config.py:703 (documented, not checked)",
    reads="job.model.num_hidden_layers job.recompute.num_layers job.recompute.granularity job.parallel.layout "
    "job.parallel.pp",
    severity="warning",
)
def recompute_layers_fit_stage(context: RuleContext) -> Iterator[Violation]:
    """The number of recomputed layers is between 1 and the layers of one stage; more means all of them."""
    job = context.job
    layers, count = job.model.num_hidden_layers, job.recompute.num_layers
    if job.recompute.granularity != "full" or layers is None or count is None or job.parallel.layout is not None:
        return
    stage = -(-layers // job.parallel.pp)
    if count > stage:
        yield Violation(
            message=f"recompute.num_layers {count} is more than the {stage} layers of a stage",
            fields=("recompute.num_layers", "parallel.pp"),
        )


@rule(
    "RC-FULL-CHUNKS",
    source="launch: the list counts chunks as parallel.layout does",
    reads="job.recompute.layers_per_chunk job.recompute.granularity job.recompute.method "
    "job.recompute.per_pp_rank job.parallel.pp job.parallel.vpp job.recompute.num_layers",
)
def recompute_counts_every_chunk(context: RuleContext) -> Iterator[Violation]:
    """Layers recomputed per chunk need full block recompute: one count for each chunk, none above num_layers."""
    recompute, parallel = context.job.recompute, context.job.parallel
    counts, path = recompute.layers_per_chunk, "recompute.layers_per_chunk"
    if not counts:
        return
    if recompute.granularity != "full" or recompute.method != "block":
        message = f"{path} needs recompute.granularity=full and recompute.method=block"
        yield Violation(message=message, fields=(path, "recompute.granularity", "recompute.method"))
    elif recompute.per_pp_rank:
        message = f"{path} counts chunks, recompute.per_pp_rank stages: one of them"
        yield Violation(message=message, fields=(path, "recompute.per_pp_rank"))
    elif len(counts) != parallel.pp * (parallel.vpp or 1):
        message = f"{path} has {len(counts)} numbers for {parallel.pp * (parallel.vpp or 1)} chunks (pp × vpp)"
        yield Violation(message=message, fields=(path, "parallel.pp", "parallel.vpp"))
    elif min(counts) < 0 or max(counts) > (recompute.num_layers or max(counts)):
        message = f"{path} {list(counts)}: numbers must be from 0 to recompute.num_layers {recompute.num_layers}"
        yield Violation(message=message, fields=(path, "recompute.num_layers"))


@rule(
    "RC-PART-CHUNKS",
    source="launch: the list counts chunks as parallel.layout does",
    reads="job.recompute.selective_layers_per_chunk job.recompute.granularity job.recompute.modules "
    "job.recompute.activation job.recompute.norm job.recompute.method job.recompute.per_pp_rank job.parallel.pp "
    "job.parallel.vpp",
)
def recompute_in_part_counts_every_chunk(context: RuleContext) -> Iterator[Violation]:
    """Layers recomputed in part per chunk need something to recompute: one count for each chunk, none below 0."""
    recompute, parallel = context.job.recompute, context.job.parallel
    counts, path = recompute.selective_layers_per_chunk, "recompute.selective_layers_per_chunk"
    if not counts:
        return
    chosen = recompute.granularity == "selective" or recompute.modules or recompute.activation or recompute.norm
    if not chosen or recompute.method == "uniform":
        message = f"{path} needs recompute.modules, activation or norm, and a recompute.method other than uniform"
        yield Violation(message=message, fields=(path, "recompute.modules", "recompute.activation", "recompute.method"))
    elif recompute.per_pp_rank:
        message = f"{path} counts chunks, recompute.per_pp_rank stages: one of them"
        yield Violation(message=message, fields=(path, "recompute.per_pp_rank"))
    elif len(counts) != parallel.pp * (parallel.vpp or 1):
        message = f"{path} has {len(counts)} numbers for {parallel.pp * (parallel.vpp or 1)} chunks (pp × vpp)"
        yield Violation(message=message, fields=(path, "parallel.pp", "parallel.vpp"))
    elif min(counts) < 0:
        yield Violation(message=f"{path} {list(counts)}: numbers must be at least 0", fields=(path,))


@rule(
    "RC-SELECTIVE",
    source=f"{_CONFIG}:1180; core_v0.12.1 arguments.py:751",
    reads="job.recompute.granularity job.recompute.method job.recompute.num_layers",
)
def selective_recompute_takes_modules(context: RuleContext) -> Iterator[Violation]:
    """Selective recompute is chosen by modules; method and number of layers belong to full recompute."""
    recompute = context.job.recompute
    given = [f"recompute.{name}" for name in ("method", "num_layers") if getattr(recompute, name) is not None]
    if recompute.granularity == "selective" and given:
        yield Violation(
            message=f"{' and '.join(given)} need recompute.granularity=full, not selective",
            fields=("recompute.granularity", *given),
        )


@rule(
    "RC-NO-GRANULARITY",
    source=f"{_CONFIG}: read only with a granularity",
    reads="job.recompute.granularity job.recompute.method job.recompute.modules job.recompute.num_layers",
    severity="warning",
)
def recompute_has_granularity(context: RuleContext) -> Iterator[Violation]:
    """Method, layers and modules have no effect without a granularity."""
    recompute = context.job.recompute
    given = [
        f"recompute.{name}"
        for name in ("method", "num_layers", "modules")
        if getattr(recompute, name) not in (None, ())
    ]
    if recompute.granularity is None and given:
        yield Violation(
            message=f"{with_verb(given, 'has', 'have')} no effect without recompute.granularity",
            fields=("recompute.granularity", *given),
        )


def _width_of_the_script(context: RuleContext) -> int | None:
    """Return the width of experts that the backend of an imported script derives: that of its dense layers."""
    script = context.job.imported
    if script.backend is None or not is_backend(script.backend):
        return None
    backend = get_backend(script.backend)
    return backend.default_ffn_size(context.job.model, backend.versions[0])


@rule(
    "MOE-TOPK",
    source="megatron-core 0.16.1 moe_utils.py topk, in the first forward pass",
    reads="job.model.num_experts job.model.moe_intermediate_size job.model.intermediate_size "
    "job.model.num_experts_per_tok job.imported.backend job.model.hidden_size job.model.hidden_act",
)
def topk_is_within_experts(context: RuleContext) -> Iterator[Violation]:
    """A token cannot be routed to more experts than there are."""
    model = context.job.model
    if model.num_experts is None:
        return
    width, chosen = model.moe_intermediate_size or model.intermediate_size, model.num_experts_per_tok
    missing = ["model.num_experts_per_tok"] if chosen is None else []
    missing += ["model.moe_intermediate_size"] if width is None else []
    if chosen is None or missing:
        derived = _width_of_the_script(context) if missing == ["model.moe_intermediate_size"] else None
        script = f"; the script's backend derives {derived} from its arguments" if derived else ""
        yield Violation(
            message=f"an MoE model needs {' and '.join(missing)}{script}",
            fields=("model.num_experts_per_tok", "model.moe_intermediate_size"),
            works=(f"model.moe_intermediate_size={derived}",) if derived else (),
        )
    elif chosen > model.num_experts:
        yield Violation(
            message=f"num_experts_per_tok {chosen} is more than num_experts {model.num_experts}",
            fields=("model.num_experts_per_tok", "model.num_experts"),
        )


@rule(
    "MOE-BALANCE",
    source="Primus#952: months of training without balancing",
    reads="job.moe.load_balancing_type job.moe.aux_loss_coeff job.model.router_expert_bias job.model.is_moe",
    severity="warning",
)
def experts_are_balanced(context: RuleContext) -> Iterator[Violation]:
    """A load-balancing loss with weight 0 has no effect; the weight in config.json is for its authors' training."""
    job = context.job
    intended = job.moe.load_balancing_type in ("none", "sinkhorn")
    balanced = job.moe.aux_loss_coeff > 0 or job.model.router_expert_bias or intended
    if job.model.is_moe and not balanced:
        yield Violation(
            message=f"experts are not balanced: load_balancing_type {job.moe.load_balancing_type} with "
            "aux_loss_coeff 0; set moe.aux_loss_coeff (about 0.001 in published models), or load_balancing_type=none "
            "if this is intended",
            fields=("moe.aux_loss_coeff", "moe.load_balancing_type"),
        )


@rule(
    "MOE-GROUPS",
    source="Megatron-LM core_v0.12.1 transformer_config.py:993-1001",
    reads="job.model.num_experts job.model.n_group job.model.topk_group",
)
def router_groups_fit(context: RuleContext) -> Iterator[Violation]:
    """Group-limited routing: n_group divides the number of experts, and topk_group is at most n_group."""
    model = context.job.model
    if model.num_experts is None or (model.n_group is None and model.topk_group is None):
        return
    fields = ("model.n_group", "model.topk_group", "model.num_experts")
    if model.n_group is None or model.topk_group is None:
        yield Violation(message="model.n_group and model.topk_group must be set together", fields=fields[:2])
    elif model.num_experts % model.n_group:
        yield Violation(
            message=f"num_experts {model.num_experts} is not divisible by n_group {model.n_group}", fields=fields
        )
    elif model.topk_group > model.n_group:
        yield Violation(message=f"topk_group {model.topk_group} is more than n_group {model.n_group}", fields=fields)


def group_scores_differ(model: Model) -> str:
    """Return how megatron-core's choice of expert groups differs from the model's own; empty where it does not.

    megatron-core scores a group by the sum of its best topk / topk_group experts (0.16.1 moe_utils.py:553); Hugging
    Face's DeepSeek-V2 (softmax) by the best one, DeepSeek-V3 (sigmoid) by the best two.
    """
    top, groups, visited = model.num_experts_per_tok, model.n_group, model.topk_group
    if top is None or groups is None or visited is None or groups <= visited:
        return ""
    theirs = 2 if model.scoring_func == "sigmoid" else 1
    if top // visited == theirs:
        return ""
    return (
        f"an expert group is scored by its best {top // visited} experts (num_experts_per_tok {top} / topk_group "
        f"{visited}), in Hugging Face's model by its best {theirs}: tokens are routed to other groups"
    )


@rule(
    "MOE-BIAS-SIGMOID",
    source=f"{_CONFIG}: moe_router_enable_expert_bias; mindformers 2.1.0 parallel_core/transformer_config.py:2475",
    reads="job.imported.backend job.model.model_type job.model.router_expert_bias job.model.scoring_func",
)
def expert_bias_needs_sigmoid(context: RuleContext) -> Iterator[Violation]:
    """The learned expert bias is defined for sigmoid scores."""
    model = context.job.model
    flags = (flag for flag, path in context.fields_by_flag.items() if path == "model.scoring_func")
    # A class that only the backend defines has its own default, which an existing file need not write.
    named = context.catalogue is not None and context.catalogue.style != "argparse"
    unknown = context.existing and named and (model.model_type is None or not any(map(context.given, flags)))
    if model.router_expert_bias and model.scoring_func == "softmax" and not unknown:
        yield Violation(
            message=f"router_expert_bias needs scoring_func sigmoid, not {model.scoring_func}",
            fields=("model.router_expert_bias", "model.scoring_func"),
        )


@rule(
    "MLA-SIZES",
    source="Hugging Face DeepseekV3Config",
    reads="job.model.is_mla job.model.qk_nope_head_dim job.model.qk_rope_head_dim job.model.v_head_dim",
)
def latent_attention_is_complete(context: RuleContext) -> Iterator[Violation]:
    """Multi-head latent attention needs the sizes of all its parts."""
    model = context.job.model
    if not model.is_mla:
        return
    missing = [
        f"model.{n}" for n in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim") if getattr(model, n) is None
    ]
    if missing:
        yield Violation(message=f"multi-head latent attention needs {', '.join(missing)}", fields=tuple(missing))
