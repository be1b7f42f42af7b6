"""General settings that MindFormers rejects: context, devices, batch."""

from typing import Any

from backends.mindformers.mapping.loader import CONFIG, FULL_MASK, MEGATRON, TYPE, data_format
from backends.mindformers.mapping.support import MODEL
from backends.mindformers.rules.terms import (
    ACCUMULATION,
    BACKENDS,
    CP,
    DP,
    EP,
    FULL_BATCH,
    MICRO,
    MODE,
    NAME,
    OLD,
    PP,
    SP,
    STATIC,
    STRATEGY,
    SWAP,
    TP,
    class_key,
    dialect_of,
    is_counted,
    resets_wrapper,
    size_of,
    whole,
)
from launcher.rules.registry import Rule, RuleContext, Violation, lift, lower
from launcher.rules.table import declare

# MindSpore's interleaved schedule accepts any number of micro-batches of at least pp (InterleavedScheduler, offset_).
lift("BATCH-VPP", NAME, lambda context: True)
# An offset given by the user sets the layers of each chunk; MF-OFFSET-SUM checks it.
lift("PAR-PP-LAYERS", NAME, lambda context: f"{MODEL}offset" in context.job.backend.passthrough)
# Its step scales the loss with every dtype (wrapper/wrapper.py:186 @2.1.0); a ported job sets no scale with bf16.
lift("SENSE-LOSS-SCALE", NAME, lambda context: context.flag("runner_wrapper.scale_sense") != 1.0)
# Legacy routers add the bias to any scores; only TransformerConfig rejects it (transformer_config.py:2475).
lift("MOE-BIAS-SIGMOID", NAME, lambda context: context.version is not None and dialect_of(context) == "legacy")

# The older networks without experts read no expert_parallel (modules/transformer/moe.py:249-259 @1.6.0).
lower("MOE-EP-DENSE", NAME, "a model without experts ignores it", when=lambda context: dialect_of(context) == "legacy")
# Their moe_config has defaults of its own, and MF-MOE-VALUES its limits (core/parallel_config.py @1.6.0).
lift("MOE-TOPK", NAME, lambda context: context.existing and dialect_of(context) == "legacy")
lift(
    "PAR-EXPERT-WORLD",
    NAME,
    lambda context: context.version is not None and dialect_of(context) == "legacy" and not context.job.model.is_moe,
)
# Its schedules take any end (core/lr/lr_schedule.py @1.6.0).
lower("LR-WARMUP-LENGTH", NAME, "the learning rate then only increases", when=lambda context: context.existing)
lower("LR-ORDER", NAME, "the learning rate then increases to min_lr")
# Unsupported data formats have no columns to split; the mapping reports them.
lift("MF-STRATEGY", NAME, lambda context: data_format(context.job) in ("text", "messages", "mock"))

_VALIDATORS = "mindformers 1.6.0 core/context/validators.py:36-59"
_CHECKS = "mindformers 2.1.0 tools/check_rules.py"
_TRAINER = "mindformers 1.6.0 trainer/base_trainer.py"
_PARALLEL = "mindformers 1.6.0 modules/transformer/op_parallel_config.py"
_DEPTH = 10
_ALONE = ("STAND_ALONE", "MANUAL_PARALLEL")
_MODES = (0, 1, 2, 3, "DATA_PARALLEL", "SEMI_AUTO_PARALLEL", "AUTO_PARALLEL", "HYBRID_PARALLEL", *_ALONE)
_SPLITS = "parallel_config.seq_split_num"
SIZES = (
    *(DP, TP, CP, EP, PP, MICRO, _SPLITS),
    "parallel_config.gradient_aggregation_group",
)
_BUILT = ("trainer.type", "optimizer.type", "lr_schedule.type")
_TASK = "train_dataset_task.type"
_VOCABULARY = "parallel_config.vocab_emb_dp"
_MEM_COEFF = "parallel_config.mem_coeff"
_SWITCHES = (SP, _VOCABULARY, SWAP, "recompute_config.mp_comm_recompute")
_SIZE_FIELDS = ("parallel.tp", "parallel.pp", "parallel.cp", "cluster.nodes", "cluster.devices_per_node")


def _one_of(key: str, known: tuple[Any, ...]) -> Any:
    def when(context: RuleContext) -> Any:
        value = context[key]
        names = ", ".join(map(str, known))
        return value is not None and value not in known and f"{key} {value}: supported are {names}"

    return when


def _types(context: RuleContext) -> Any:
    keys = [*_BUILT, *(() if resets_wrapper(context) else ("runner_wrapper.type",))]
    if context.version == OLD:  # later, data sets of Hugging Face have no task
        keys.append(_TASK)
    passed = context.job.backend.passthrough
    # null in there takes the key out of the file, which the template refuses, reset or not
    removed = (key for key in ("runner_wrapper.type", *keys) if key in passed and key not in context.written)
    missing = [key for key in keys if key in context.written and not context[key]]
    missing = list(dict.fromkeys([*missing, *removed]))
    if context.as_written:  # the template wants the key of every section that is there (template.py:107-110)
        sections = {key.partition(".")[0] for key in context.written if "." in key}  # null: as if it was not there
        required = ("runner_wrapper.type", *_BUILT)
        missing += [
            key for key in required if key.partition(".")[0] in sections and key not in (*context.written, *missing)
        ]
        if context.version == OLD:  # of these it has no default
            missing += [key for key in ("trainer.type", _TASK) if key not in context.written and key not in missing]
    return missing and f"{', '.join(missing)} must name a class"


def _depth(context: RuleContext) -> Any:
    def levels(value: Any) -> int:
        return 1 + max(map(levels, value.values()), default=0) if isinstance(value, dict) else 0

    depths = (
        (key.count(".") + 1 + (levels(arg.value) if isinstance(arg.value, dict) else 0), key)
        for key, arg in context.written.items()
    )
    depth, key = max(depths, default=(0, ""))
    return depth > _DEPTH and f"{key} is nested {depth} sections deep: at most {_DEPTH} are supported"


def _sizes(context: RuleContext) -> Any:
    given = [
        key for key in SIZES if context.given(key) or (key in context.written and key != _SPLITS)
    ]  # null is no size
    wrong = [f"{key}={context[key]}" for key in given if not whole(context[key]) or context[key] < 1]
    return wrong and f"{', '.join(wrong)} must be a whole number above 0"


def _switches(context: RuleContext) -> Any:
    staged = size_of(context, PP) > 1  # then vocab_emb_dp is set to false before it is looked at
    read = [key for key in _SWITCHES if not (staged and key == _VOCABULARY)]
    wrong = [f"{key}={context[key]}" for key in read if key in context.written and not isinstance(context[key], bool)]
    return wrong and f"{', '.join(wrong)} must be true or false"


def _world(context: RuleContext) -> Any:
    made, world = (
        size_of(context, DP) * size_of(context, TP) * size_of(context, CP) * size_of(context, PP),
        context.job.cluster.world_size,
    )
    return is_counted(context) and made != world and f"dp × tp × cp × pp = {made}, but there are {world} devices"


def _servers(context: RuleContext) -> Any:
    nodes, pp = context.job.cluster.nodes, size_of(context, PP)
    return nodes > 1 and nodes % pp and f"{nodes} nodes are not a multiple of pp {pp}: stages do not divide over nodes"


def _alone(context: RuleContext) -> Any:
    mode, world = context[MODE], context.job.cluster.world_size
    parts = size_of(context, DP) * size_of(context, TP) * size_of(context, CP) * size_of(context, PP)
    why = "use_parallel is false" if not context["use_parallel"] else f"{MODE} is {mode}" if mode in _ALONE else ""
    return (
        min(parts, world) > 1
        and why
        and f"{why}: each of {world} processes would train a separate model; set use_parallel: True and "
        "parallel_mode: 1"
    )


def _shards(context: RuleContext) -> Any:
    model, world = context.job.model, context.job.cluster.world_size
    sizes = {"vocab_size": model.vocab_size, "hidden_size": model.hidden_size}
    odd = [f"{name} {size}" for name, size in sizes.items() if size and size % world]
    sharded = context["parallel.enable_parallel_optimizer"]
    return (
        sharded and odd and f"{', '.join(odd)} not divisible by {world} devices: some optimizer states are not sharded"
    )


def _strategy(context: RuleContext) -> Any:
    whole_batch = context[FULL_BATCH] or FULL_BATCH not in context.written  # null switches it off
    if not is_counted(context) or whole_batch:
        return None
    strategy = context[STRATEGY]
    if not isinstance(strategy, (list, tuple)) or not strategy or not isinstance(strategy[0], (list, tuple)):
        return "full_batch false needs a dataset_strategy such as [[dp, 1], …]"
    dp = size_of(context, DP)
    return (
        strategy[0][0] != dp
        and f"dataset_strategy splits the batch over {strategy[0][0]} ranks, but data_parallel is {dp}"
    )


def _token_files(context: RuleContext) -> Any:
    world = context.job.cluster.world_size
    unsplit = context[TYPE] == MEGATRON and context[FULL_BATCH] is True and context["use_parallel"] is True
    if not unsplit or world == 1:
        return None
    message = f"{MEGATRON} on {world} devices needs a dataset_strategy: full_batch true leaves none"
    return Violation(message=message, works=("graph.full_batch=false",))


def _added_mask(context: RuleContext) -> Any:
    is_older = dialect_of(context) == "legacy" and context[TYPE] == MEGATRON
    if not is_older or not context[f"{CONFIG}{FULL_MASK}"] or class_key(context, "use_flash_attention"):
        return None
    message = "create_attention_mask without use_flash_attention: attention of older models is then not causal"
    return Violation(message=message, works=("kernels.attention_backend=flash",))


GENERAL = (
    Rule(
        id="MF-RUN-MODE",
        doc="The trainer has four modes, two of which train.",
        source=_VALIDATORS,
        flags=("run_mode",),
        fields=("task.type",),
        check=_one_of("run_mode", ("train", "finetune", "eval", "predict")),
    ),
    Rule(
        id="MF-EVAL-PP",
        doc="Evaluation and prediction run without pipeline stages.",
        source=f"{_CHECKS}:111",
        when=f"run_mode=eval|predict & {PP}>1",
        message="run_mode eval or predict needs pp 1",
    ),
    Rule(
        id="MF-CONTEXT-MODE",
        doc="MindSpore runs graphs (0) or operators one by one (1).",
        source=_VALIDATORS,
        flags=("context.mode",),
        check=_one_of("context.mode", (0, 1, "GRAPH_MODE", "PYNATIVE_MODE")),
    ),
    Rule(
        id="MF-PARALLEL-MODE",
        doc="The parallel mode is one that MindSpore has.",
        source=_VALIDATORS,
        flags=(MODE,),
        check=_one_of(MODE, _MODES),
    ),
    Rule(
        id="MF-TYPES",
        doc="Sections that build an object must name its class.",
        source="mindformers 1.6.0 tools/register/template.py:109",
        flags=(*_BUILT, _TASK, "runner_wrapper.type"),
        check=_types,
        reads="*",
    ),
    Rule(
        id="MF-DEPTH",
        doc="A file has at most ten levels of sections.",
        source="mindformers 1.6.0 tools/check_rules.py:388",
        flags=(),
        fields=("backend.args",),
        check=_depth,
        reads="*",
    ),
    Rule(
        id="MF-SIZES",
        doc="Parallel sizes and micro-batches are whole numbers above 0.",
        source=f"{_PARALLEL}:62-68,163-165,265-267",
        flags=SIZES,
        check=_sizes,
    ),
    Rule(
        id="MF-MEM-COEFF",
        doc="The weight of memory in the cost of a matrix product is above 0.",
        source="mindformers 1.6.0 core/parallel_config.py:67; mindspore 2.7.0 frontend/parallel/costmodel_context.cc",
        flags=(_MEM_COEFF,),
        fields=("backend.args",),
        check=lambda context: (
            _MEM_COEFF in context.written
            and (not isinstance(context[_MEM_COEFF], (int, float)) or context[_MEM_COEFF] <= 0)
        ),
        message="parallel_config.mem_coeff must be a number above 0",
    ),
    Rule(
        id="MF-SWITCHES",
        doc="Switches are true or false, not numbers or words.",
        source="mindformers 1.6.0 modules/transformer/transformer.py:118,211,419",
        flags=_SWITCHES,
        check=_switches,
        reads=PP,
    ),
    Rule(
        id="MF-WORLD",
        doc="In the automatic modes dp, tp, cp and pp together use every device; expert parallelism does not count.",
        source=f"{_CHECKS}:168-172",
        flags=(DP, TP, CP, PP),
        fields=_SIZE_FIELDS,
        check=_world,
        reads="job.cluster.world_size @counted",
    ),
    Rule(
        id="MF-ALONE",
        doc="Processes that train one model together need use_parallel and a parallel mode.",
        source=f"mindformers 1.6.0 core/context/build_context.py:68; dataset/base_dataset.py:66; {_TRAINER}:263-280",
        flags=("use_parallel", MODE, DP, TP, CP, PP),
        fields=("graph.distributed", "graph.parallel_mode", "cluster.nodes", "cluster.devices_per_node"),
        check=_alone,
        reads="job.cluster.world_size",
    ),
    Rule(
        id="MF-SERVERS",
        doc="Stages that do not divide over nodes may fail to communicate.",
        source=f"{_CHECKS}:174-177",
        flags=(PP,),
        fields=("parallel.pp", "cluster.nodes"),
        check=_servers,
        reads="job.cluster.nodes",
        severity="warning",
    ),
    Rule(
        id="MF-SHARDS",
        doc="Optimizer states of sizes that do not divide by the devices stay whole on each of them.",
        source=f"{_CHECKS}:179-187",
        flags=("parallel.enable_parallel_optimizer",),
        check=_shards,
        reads="job.cluster.world_size job.model.vocab_size job.model.hidden_size",
        severity="warning",
    ),
    Rule(
        id="MF-STRATEGY",
        doc="Without full_batch each data-parallel rank reads its own part, which dataset_strategy must say.",
        source=f"{_TRAINER}:231-235",
        flags=(FULL_BATCH, STRATEGY, DP),
        fields=("cluster.nodes", "cluster.devices_per_node"),
        check=_strategy,
        reads="@counted",
    ),
    Rule(
        id="MF-TOKEN-FILES-SPLIT",
        doc="On several devices the loader of token files takes the number of data-parallel ranks from "
        "dataset_strategy, which full_batch replaces.",
        source="mindformers 1.6.0 dataset/dataloader/blended_megatron_dataloader.py:170; tools/utils.py:469",
        flags=(FULL_BATCH, STRATEGY, TYPE),
        fields=("graph.full_batch", "data.format"),
        check=_token_files,
        reads="job.cluster.world_size use_parallel",
        until=OLD,
    ),
    Rule(
        id="MF-MASK-ADDED",
        doc="Older models without flash attention add the loader's mask to the scores as it is: 1 where a token must "
        "not attend, instead of a large negative number, so every token sees those after it.",
        source="mindformers 1.6.0 and 1.8.0 models/llama/llama_transformer.py:722; models/llama/llama.py:339; measured "
        "with launch parity",
        flags=(f"{CONFIG}{FULL_MASK}", TYPE, f"{MODEL}use_flash_attention"),
        fields=("kernels.attention_backend", "data.format"),
        check=_added_mask,
        stricter=True,
        reason="MindFormers trains, but a model that predicts tokens that it sees",
    ),
    Rule(
        id="MF-FULL-BATCH",
        doc="full_batch replaces another dataset_strategy.",
        source=f"{_TRAINER}:201",
        fields=("backend.args",),
        when=f"@automatic & {FULL_BATCH} & {STRATEGY}!=None|full_batch",
        sets={STRATEGY: "full_batch"},
        message="dataset_strategy → full_batch: full_batch true replaces it",
        severity="change",
    ),
    Rule(
        id="MF-ACCUMULATION",
        doc="Gradient accumulation is counted in whole steps.",
        source=f"{_TRAINER}:287-293",
        flags=(ACCUMULATION,),
        when=f"{ACCUMULATION}?",
        check=lambda context: not whole(context[ACCUMULATION]) or context[ACCUMULATION] < 1,
        message="gradient_accumulation_steps must be a whole number above 0",
    ),
)

declare(GENERAL, backends=BACKENDS, when=STATIC)
