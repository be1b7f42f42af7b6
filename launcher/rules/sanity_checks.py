"""Checks that no backend performs: lengths, data, rates, vocabularies, values without effect."""

import math
from collections.abc import Iterator

from launcher.budgets import written_out
from launcher.job import Job, value_at
from launcher.job.task import PREFERENCE_OPTIONS
from launcher.rules.registry import RuleContext, Violation, rule
from launcher.terminal import with_verb

_PREFERENCE = ("dpo", "simpo", "kto", "cpo", "orpo", "reward_model", "grpo", "gkd")
# Above these, pretrained weights are overwritten, not tuned, and training from scratch diverges: two orders of
# magnitude above papers and examples.
_HIGHEST_LR = {"all weights": 1e-3, "adapters": 1e-2}
_HIGHEST_PRETRAINING_LR = 0.1
_SHAPES = (
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "moe_intermediate_size",
    "num_experts",
    "shared_expert_intermediate_size",
    "kv_lora_rank",
    "q_lora_rank",
    "tie_word_embeddings",
)


def _starts_from_weights(job: Job) -> bool:
    named = job.model.path is not None or job.model.hub_id is not None
    return named and job.model.pretrained is not False


def layout_chunks(text: str) -> list[str]:
    """Return the chunks of a pipeline layout, repetitions written out."""
    return written_out(text).split("|")


def layout_error(text: str, stages: int, prediction_layers: int) -> str:
    """Return why megatron-core refuses a pipeline layout, whatever the number of layers; empty: it does not.

    Args:
        stages: pipeline stages, on each of which there is the same number of chunks.
        prediction_layers: MTP layers of the model.

    Source: megatron-core 0.16.1 pipeline_parallel_layer_layout.py:85-165.
    """
    chunks = layout_chunks(text)
    flat = "".join(chunks)
    unknown = sorted(set(flat) - set("EtmL"))
    if unknown:
        return f"unknown letters {''.join(unknown)}: E is the embedding, t a layer, m an MTP layer, L the loss"
    if len(chunks) % stages:
        return f"{len(chunks)} chunks are not divisible by pp {stages}"
    if stages == 1 and len(chunks) > 1:
        return f"{len(chunks)} chunks need pp of at least 2"
    if not flat.startswith("E") or not flat.endswith("L") or flat.count("E") != 1 or flat.count("L") != 1:
        return "it must have exactly one E, at the start, and one L, at the end"
    return _prediction_error(chunks, stages, prediction_layers)


def _prediction_error(chunks: list[str], stages: int, expected: int) -> str:
    flat = "".join(chunks)
    if flat.count("m") != expected:
        return f"it has {flat.count('m')} MTP layers, but the model has {expected}"
    if "m" in flat and "t" in flat[flat.index("m") :]:
        return "MTP layers must come after all other layers"
    if any("m" in chunk for chunk in chunks[:-stages]) or sum("m" in chunk for chunk in chunks) > 1:
        return "all MTP layers must be in one chunk, the last of its stage"
    return ""


@rule(
    "SENSE-LAYOUT",
    source="megatron-core 0.16.1 pipeline_parallel_layer_layout.py:105; arithmetic everywhere",
    reads="job.parallel.layout job.model.num_hidden_layers",
)
def layout_places_every_layer(context: RuleContext) -> Iterator[Violation]:
    """An explicit layout places each layer of the model once."""
    layout, layers = context.job.parallel.layout, context.job.model.num_hidden_layers
    placed = "".join(layout_chunks(layout)).count("t") if layout is not None else None
    if placed is not None and layers is not None and placed != layers:
        yield Violation(
            message=f"parallel.layout {layout} has {placed} layers, but the model has {layers}",
            fields=("parallel.layout", "model.num_hidden_layers"),
        )


@rule(
    "SENSE-SAMPLES",
    source="arithmetic: one optimizer step takes a global batch",
    reads="job.schedule.train_samples job.batch.global_batch_size",
)
def samples_fill_a_batch(context: RuleContext) -> Iterator[Violation]:
    """Training on fewer samples than one global batch takes no step."""
    samples, batch = context.job.schedule.train_samples, context.job.batch.global_batch_size
    if samples is not None and batch is not None and samples < batch:
        yield Violation(
            message=f"train_samples {samples} is less than one global batch of {batch}: no step is taken",
            fields=("schedule.train_samples", "batch.global_batch_size"),
        )


@rule(
    "SENSE-SAMPLES-REST",
    source="Megatron-LM core_v0.12.1 training.py update_train_iters",
    reads="job.schedule.train_samples job.batch.global_batch_size",
    severity="warning",
)
def samples_are_whole_batches(context: RuleContext) -> Iterator[Violation]:
    """Training uses whole global batches; the samples beyond the last one are dropped."""
    samples, batch = context.job.schedule.train_samples, context.job.batch.global_batch_size
    if samples is not None and batch is not None and samples > batch and samples % batch:
        yield Violation(
            message=f"train_samples {samples} → {samples - samples % batch}: "
            f"{samples % batch} samples beyond the last global batch of {batch} are not trained",
            fields=("schedule.train_samples", "batch.global_batch_size"),
        )


@rule(
    "SENSE-LENGTH",
    source="backends differ: the first end, or the product",
    reads="job.schedule.epochs job.schedule.train_iters job.schedule.train_samples",
    severity="warning",
)
def length_has_one_setting(context: RuleContext) -> Iterator[Violation]:
    """If epochs are set with iterations or samples, the end of training depends on the backend."""
    schedule = context.job.schedule
    others = [f"schedule.{name}" for name in ("train_iters", "train_samples") if getattr(schedule, name) is not None]
    if schedule.epochs is not None and others:
        yield Violation(
            message=f"schedule.epochs and {others[0]} are both set: which one ends training depends on the backend",
            fields=("schedule.epochs", *others),
        )


@rule(
    "SENSE-VOCAB",
    source="arithmetic: every token needs a row of the embedding",
    reads="job.tokenizer.padded_vocab_size job.model.vocab_size",
)
def padded_vocabulary_holds_all_tokens(context: RuleContext) -> Iterator[Violation]:
    """Padding can only enlarge the vocabulary: tokens beyond the last row would read outside of the embedding."""
    padded, size = context.job.tokenizer.padded_vocab_size, context.job.model.vocab_size
    if padded is not None and size is not None and padded < size:
        yield Violation(
            message=f"padded_vocab_size {padded} is less than vocab_size {size}",
            fields=("tokenizer.padded_vocab_size", "model.vocab_size"),
            works=("tokenizer.padded_vocab_size=null", f"tokenizer.padded_vocab_size={size}"),
        )


@rule(
    "SENSE-HEADS",
    source="Ainslie et al. 2023, GQA: query heads share key and value heads in equal groups",
    reads="job.model.num_attention_heads job.model.num_key_value_heads job.model.is_mla",
)
def query_heads_share_evenly(context: RuleContext) -> Iterator[Violation]:
    """Query heads divide evenly over key and value heads."""
    model = context.job.model
    heads, groups = model.num_attention_heads, model.num_key_value_heads
    if heads is not None and groups is not None and not model.is_mla and heads % groups:
        yield Violation(
            message=f"num_attention_heads {heads} is not a multiple of num_key_value_heads {groups}",
            fields=("model.num_attention_heads", "model.num_key_value_heads"),
        )


@rule(
    "SENSE-SHARES",
    source="arithmetic: shares and decay rates lie below 1",
    reads="job.data.validation_ratio job.lora.dropout job.model.attention_dropout job.model.hidden_dropout "
    "job.optimizer.adam_beta1 job.optimizer.adam_beta2",
)
def shares_lie_below_one(context: RuleContext) -> Iterator[Violation]:
    """Decay rates of Adam, dropout and the share of validation data must be below 1."""
    paths = (
        "optimizer.adam_beta1",
        "optimizer.adam_beta2",
        "model.attention_dropout",
        "model.hidden_dropout",
        "lora.dropout",
        "data.validation_ratio",
    )
    for path in paths:
        value = value_at(context.job, path)
        # A dropout of 1 drops everything and still runs.
        highest = 1 if path.endswith(("beta1", "beta2")) else math.nextafter(1, 2)
        if value is not None and value >= highest:
            yield Violation(message=f"{path} {value:g} must be below 1", fields=(path,))


@rule(
    "SENSE-ROPE",
    source="Hugging Face rope_scaling: factor × original_max_position_embeddings",
    reads="job.batch.seq_length job.model.rope_scaling.factor "
    "job.model.rope_scaling.original_max_position_embeddings job.model.rope_scaling.type",
    severity="warning",
)
def rope_scaling_covers_the_sequence(context: RuleContext) -> Iterator[Violation]:
    """RoPE scaling extends positions to factor times the original length; longer sequences are not covered."""
    scaling, length = context.job.model.rope_scaling, context.job.batch.seq_length
    original, factor = scaling.original_max_position_embeddings, scaling.factor
    if scaling.type is None or original is None or factor is None or length is None:
        return
    if length > original * factor:
        yield Violation(
            message=f"seq_length {length} is above the range of RoPE scaling: {original} × {factor:g} = "
            f"{original * factor:g}",
            fields=("batch.seq_length", "model.rope_scaling.factor"),
        )


@rule(
    "SENSE-ROPE-TYPE",
    source="Hugging Face rope_scaling: read with a type only",
    reads="job.model.rope_scaling.factor job.model.rope_scaling.type",
    severity="warning",
)
def rope_scaling_has_type(context: RuleContext) -> Iterator[Violation]:
    """RoPE scaling values without a type are not used, and a type needs its factor."""
    scaling = context.job.model.rope_scaling
    if scaling.type is None and scaling.factor is not None:
        yield Violation(
            message="model.rope_scaling.factor without a type: RoPE is not scaled",
            fields=("model.rope_scaling.type", "model.rope_scaling.factor"),
        )
    if scaling.type in ("linear", "dynamic", "yarn", "llama3") and scaling.factor is None:
        yield Violation(
            message=f"rope scaling {scaling.type} needs model.rope_scaling.factor",
            fields=("model.rope_scaling.factor",),
        )


@rule(
    "SENSE-WEIGHTS",
    source="config.json of the weights",
    reads="job.model.overridden job.model.path job.model.hub_id job.model.pretrained job.checkpoint.load",
    severity="warning",
)
def weights_fit_the_model(context: RuleContext) -> Iterator[Violation]:
    """Weights have the sizes of their own config.json; a model of other sizes cannot load them."""
    job = context.job
    changed = [f"model.{name}" for name in job.model.overridden if name in _SHAPES]
    if changed and _starts_from_weights(job) and job.checkpoint.load is None:
        yield Violation(
            message=f"{', '.join(changed)} differ from config.json, so that its weights cannot be loaded: set "
            "model.pretrained=false",
            fields=("model.pretrained", *changed),
        )


# Fields of config.json with which the same weights make the same model.
NOT_ARCHITECTURE = ("attention_dropout", "initializer_range", "max_position_embeddings")


@rule(
    "SENSE-CONFIG",
    source="config.json of model.path",
    reads="job.model.*",
    severity="warning",
)
def architecture_is_that_of_config_json(context: RuleContext) -> Iterator[Violation]:
    """The job's own values take precedence over config.json: a model of another architecture is trained."""
    job = context.job
    changed = [name for name in job.model.overridden if name not in NOT_ARCHITECTURE]
    if job.model.path is None or not changed:
        return
    replaced = {name: job.origin(f"model.{name}").replaced for name in changed}
    shown = (f"{name} {_text(job, name)}{f' (not {text})' if text else ''}" for name, text in replaced.items())
    yield Violation(
        message=f"the job replaces values of the model's config.json: {', '.join(shown)}",
        fields=("model.path", *(f"model.{name}" for name in changed)),
    )


# What makes it another model, and a layout or a learning rate one for another model.
_IDENTITY = ("model_type", "num_hidden_layers", "hidden_size", "num_experts")


@rule(
    "SENSE-MODEL-REPLACED",
    source="config.json of model.path, and the recipe or preset",
    reads="job.model.*",
    severity="warning",
)
def folder_has_the_recipes_model(context: RuleContext) -> Iterator[Violation]:
    """The config.json of model.path takes precedence over a recipe's preset: the recipe's layout is another model's."""
    replaced = _replaced_identity(context.job)
    if replaced:
        fields = ("model.path", *(f"model.{name}" for name in replaced))
        yield Violation(message=replaced_model(context.job), fields=fields)


def replaced_model(job: Job) -> str:
    """Return how the model of model.path differs from that of the recipe, a sentence; "" where it is the same."""
    shown = [f"{name} {_text(job, name)} (not {text})" for name, text in _replaced_identity(job).items()]
    other = "model.path is another model than the recipe's, whose other values stay"
    return f"{other}: {', '.join(shown)}" if shown else ""


def _replaced_identity(job: Job) -> dict[str, str]:
    """Return the values of the recipe's model that the config.json of model.path replaced, with their places."""
    if job.model.path is None:
        return {}
    origins = {name: job.origin(f"model.{name}") for name in _IDENTITY}
    return {name: each.replaced for name, each in origins.items() if each.kind == "derived" and each.replaced}


def _text(job: Job, name: str) -> str:
    value = value_at(job, f"model.{name}")
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


@rule(
    "SENSE-LR-HIGH",
    source="Hu et al. 2021, LoRA, and published recipes: 1e-6 to 5e-4; Brown et al. 2020, table 2.1: 6e-5 to 6e-4",
    reads="job.lora.rank job.task.type job.optimizer.lr job.model.path job.model.hub_id job.model.pretrained "
    "job.optimizer.type",
    severity="warning",
)
def tuning_rate_is_small(context: RuleContext) -> Iterator[Violation]:
    """A learning rate for pre-training destroys pretrained weights; with a far larger one, no training converges."""
    job, lr = context.job, context.job.optimizer.lr
    if lr is None or job.optimizer.type != "adam":
        return
    kind = "all weights" if job.lora.rank is None else "adapters"
    what, highest = f"tuning {kind} of a pretrained model", _HIGHEST_LR[kind]
    if job.task.type == "pretrain" or not _starts_from_weights(job):
        what, highest = "training from scratch", _HIGHEST_PRETRAINING_LR
    if lr > highest:
        yield Violation(
            message=f"lr {lr:g} is far above the usual rates for {what} (at most {highest:g})", fields=("optimizer.lr",)
        )


@rule("SENSE-LR-ZERO", source="arithmetic: weights move by lr", reads="job.optimizer.lr", severity="warning")
def learning_rate_is_not_zero(context: RuleContext) -> Iterator[Violation]:
    """With a learning rate of 0 nothing is learned."""
    if context.job.optimizer.lr == 0:
        yield Violation(message="optimizer.lr is 0: the weights do not change", fields=("optimizer.lr",))


@rule(
    "SENSE-WSD",
    source="Megatron-core optimizer_param_scheduler.py",
    reads="job.schedule.lr_decay_style job.schedule.lr_decay_iters job.schedule.train_iters "
    "job.schedule.lr_wsd_decay_iters job.schedule.lr_wsd_decay_samples job.schedule.lr_wsd_decay_style",
    severity="warning",
)
def annealing_belongs_to_its_schedule(context: RuleContext) -> Iterator[Violation]:
    """Annealing is a part of the WSD schedule and not longer than training."""
    schedule = context.job.schedule
    wsd = ("lr_wsd_decay_style", "lr_wsd_decay_iters", "lr_wsd_decay_samples")
    names = [f"schedule.{name}" for name in wsd if getattr(schedule, name)]
    if schedule.lr_decay_style != "WSD" and names:
        yield Violation(
            message=f"{', '.join(names)} need lr_decay_style WSD, not {schedule.lr_decay_style}",
            fields=("schedule.lr_decay_style", *names),
        )
    end = schedule.lr_decay_iters or schedule.train_iters
    if schedule.lr_decay_style == "WSD" and schedule.lr_wsd_decay_iters and end and schedule.lr_wsd_decay_iters > end:
        yield Violation(
            message=f"lr_wsd_decay_iters {schedule.lr_wsd_decay_iters} is above the {end} iterations of the decay",
            fields=("schedule.lr_wsd_decay_iters",),
        )


@rule(
    "SENSE-STREAM-EPOCHS",
    source="a stream has no length",
    reads="job.data.streaming job.schedule.epochs job.schedule.train_iters",
    severity="warning",
)
def streams_have_no_epochs(context: RuleContext) -> Iterator[Violation]:
    """The length of a stream is unknown in advance: epochs give no number of steps, and the decay has no end."""
    job = context.job
    if job.data.streaming and job.schedule.epochs is not None and job.schedule.train_iters is None:
        yield Violation(
            message="data.streaming needs schedule.train_iters, not epochs: a stream has no length",
            fields=("schedule.train_iters", "schedule.epochs", "data.streaming"),
        )


@rule(
    "SENSE-EVAL-DATA",
    source="launch",
    reads="job.evaluation.interval job.evaluation.iters job.data.format job.data.split job.data.validation_ratio "
    "job.data.validation_paths",
    severity="warning",
)
def evaluation_has_data(context: RuleContext) -> Iterator[Violation]:
    """Evaluation needs held-out data."""
    job = context.job
    expected = job.evaluation.interval is not None and job.evaluation.iters != 0
    splits = job.data.format in (None, "megatron", "sample", "mock") or job.data.split or job.data.validation_ratio
    if expected and not splits and not job.data.validation_paths:
        yield Violation(
            message="evaluation.interval needs validation data: set data.validation_paths or data.validation_ratio",
            fields=("evaluation.interval", "data.validation_ratio"),
        )


@rule(
    "SENSE-EVAL-INTERVAL",
    source="arithmetic",
    reads="job.evaluation.interval job.schedule.train_iters job.evaluation.iters",
    severity="warning",
)
def evaluation_happens(context: RuleContext) -> Iterator[Violation]:
    """With an interval beyond the end of training, evaluation never runs during training."""
    interval, end = context.job.evaluation.interval, context.job.schedule.train_iters
    if interval is not None and end is not None and interval > end and context.job.evaluation.iters != 0:
        yield Violation(
            message=f"evaluation.interval {interval} is above schedule.train_iters {end}: no evaluation runs "
            "during training",
            fields=("evaluation.interval", "schedule.train_iters"),
        )


@rule(
    "SENSE-LOSS-SCALE",
    source="Megatron-core OptimizerConfig: read with fp16 only",
    reads="job.precision.dtype job.precision.initial_loss_scale job.precision.loss_scale",
    severity="warning",
)
def loss_scale_belongs_to_fp16(context: RuleContext) -> Iterator[Violation]:
    """Only fp16 gradients need loss scaling."""
    precision = context.job.precision
    given = [f"precision.{name}" for name in ("loss_scale", "initial_loss_scale") if getattr(precision, name)]
    if given and precision.dtype != "fp16":
        yield Violation(
            message=f"{with_verb(given, 'has', 'have')} no effect: the loss is scaled in fp16 only, not "
            f"{precision.dtype}",
            fields=(*given, "precision.dtype"),
        )


@rule(
    "SENSE-TASK",
    source="TRL DPOConfig and its relatives",
    reads="job.task.type job.task.beta job.task.desirable_weight job.task.label_smoothing job.task.loss_type "
    "job.task.reference_model job.task.rpo_alpha job.task.simpo_gamma job.task.undesirable_weight",
    severity="warning",
)
def preference_options_belong_to_preferences(context: RuleContext) -> Iterator[Violation]:
    """Options of preference losses have no effect on other tasks."""
    task = context.job.task
    given = [f"task.{name}" for name in PREFERENCE_OPTIONS if getattr(task, name) is not None]
    if given and task.type not in _PREFERENCE:
        yield Violation(
            message=f"{with_verb(given, 'has', 'have')} no effect with task.type={task.type}",
            fields=("task.type", *given),
        )


@rule(
    "SENSE-DENSE-MOE",
    source="Megatron-core TransformerConfig: read with experts only",
    reads="job.model.hidden_size job.model.is_moe job.moe.capacity_factor job.moe.deepep job.moe.grouped_gemm "
    "job.moe.permute_fusion job.moe.shared_expert_overlap job.moe.z_loss_coeff",
    severity="warning",
)
def expert_options_need_experts(context: RuleContext) -> Iterator[Violation]:
    """Options of experts have no effect on a dense model."""
    job = context.job
    names = ("grouped_gemm", "permute_fusion", "shared_expert_overlap", "capacity_factor", "deepep", "z_loss_coeff")
    given = [f"moe.{name}" for name in names if getattr(job.moe, name)]
    if given and job.model.hidden_size is not None and not job.model.is_moe:
        yield Violation(message=f"{with_verb(given, 'has', 'have')} no effect: the model is dense", fields=tuple(given))
