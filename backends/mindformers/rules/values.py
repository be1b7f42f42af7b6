"""Names of classes and types of values that MindFormers and MindSpore check before they build anything."""

from collections.abc import Mapping
from typing import Any

from backends.mindformers.mapping.support import MODEL
from backends.mindformers.rules.terms import BACKENDS, OLD, STATIC, resets_wrapper, whole
from launcher.rules.registry import Rule, RuleContext
from launcher.rules.table import declare


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# What its registry holds after `import mindformers.trainer`, by section.
_REGISTERED: Mapping[str, frozenset[str]] = {
    "trainer": _words("CausalLanguageModelingTrainer GeneralTaskTrainer MultiModalToTextGenerationTrainer general"),
    "optimizer": _words(
        "ASGD AdaFactor AdaMax AdaSumByDeltaWeightWrapCell AdaSumByGradWrapCell Adadelta Adagrad Adam AdamOffload "
        "AdamW AdamWeightDecay Came FTRL LARS Lamb LazyAdam Momentum OptTFTWrapper Optimizer ProximalAdagrad RMSProp "
        "Rprop SGD adafactor adagrad adam sgd"
    ),
    "lr_schedule": _words(
        "ConstantWarmUpLR ConstantWithCoolDownLR CosineAnnealingLR CosineAnnealingWarmRestarts CosineDecayLR "
        "CosineWithRestartsAndWarmUpLR CosineWithWarmUpLR ExponentialDecayLR InverseDecayLR LearningRateSchedule "
        "LearningRateWiseLayer LinearWithWarmUpLR NaturalExpDecayLR PolynomialDecayLR PolynomialWithWarmUpLR WarmUpLR "
        "WarmUpStableDecayLR constant_with_warmup cosine cosine_annealing cosine_annealing_warm_restarts "
        "cosine_with_restarts linear polynomial"
    ),
    "runner_wrapper": _words(
        "AdaptiveLossScaleUpdateCell DistributedGradReducer DynamicLossScaleUpdateCell FixedLossScaleUpdateCell "
        "ForwardValueAndGrad GetNextSingleOp GradAccumulationCell MFPipelineWithLossScaleCell MFTrainOneStepCell "
        "MicroBatchInterleaved ParameterUpdate PipelineCell PipelineGradReducer TimeDistributed TrainOneStepCell "
        "TrainOneStepWithLossScaleCell VirtualDatasetCellTriple WithEvalCell WithGradCell WithLossCell "
        "loss_scale_wrapper mf_wrapper pipeline_wrapper wrapper"
    ),
    "train_dataset_task": _words(
        "CausalLanguageModelDataset GeneralDataset KeyWordGenDataset ModalToTextSFTDataset MultiTurnDataset"
    ),
    "train_dataset.data_loader": _words(
        "ADGenDataLoader AGNewsDataset AmazonReviewDataset BaseMultiModalDataLoader BlendedMegatronDatasetDataLoader "
        "CLUEDataset CMUArcticDataset CSVDataset Caltech101Dataset Caltech256Dataset CelebADataset Cifar100Dataset "
        "Cifar10Dataset CityscapesDataset CoNLL2000Dataset CocoDataset CommonDataLoader DBpediaDataset DIV2KDataset "
        "EMnistDataset EnWik9Dataset FakeImageDataset FashionMnistDataset FlickrDataset Flowers102Dataset "
        "Food101Dataset GTZANDataset GeneratorDataset IMDBDataset IWSLT2016Dataset IWSLT2017Dataset "
        "ImageFolderDataset IndexedDataLoader KITTIDataset KMnistDataset LFWDataset LJSpeechDataset LSUNDataset "
        "LibriTTSDataset ManifestDataset MindDataset MnistDataset Multi30kDataset MultiSourceDataLoader "
        "NumpySlicesDataset OBSMindDataset OmniglotDataset PaddedDataset PennTreebankDataset PhotoTourDataset "
        "Places365Dataset QMnistDataset RandomDataset RenderedSST2Dataset SBDataset SBUDataset SFTDataLoader "
        "SQuADDataset SST2Dataset STL10Dataset SUN397Dataset SVHNDataset SemeionDataset SogouNewsDataset "
        "SpeechCommandsDataset TFRecordDataset TedliumDataset TextFileDataset ToolAlpacaDataLoader "
        "TrainingDataLoader UDPOSDataset USPSDataset VOCDataset WIDERFaceDataset WikiTextDataset "
        "YahooAnswersDataset YelpReviewDataset YesNoDataset generator"
    ),
    "callbacks": _words(
        "BackupAndRestore Callback CheckpointMonitor ColdHotExpertMonitor EarlyStopping EvalCallBack "
        "FlopsUtilizationCollector History LambdaCallback LearningRateScheduler LossMonitor MFLossMonitor "
        "MoEDropRateCallback ModelCheckpoint OnRequestExit ProfileMonitor ReduceLROnPlateau SDCMonitor "
        "StressDetectCallBack StressTestModelMonitor SummaryCollector SummaryLandscape SummaryMonitor TimeMonitor "
        "TopkBiasBalanceCallback TrainCallBack TrainFaultTolerance TrainingStateMonitor"
    ),
}
# Keywords of set_auto_parallel_context with a type check.
_KEYWORDS: Mapping[type, tuple[str, ...]] = {
    bool: (
        *("gradients_mean", "gradient_fp32_sync", "parameter_broadcast", "full_batch", "enable_parallel_optimizer"),
        *("enable_alltoall", "pipeline_result_broadcast", "force_fp32_communication"),
        "parallel_optimizer_config.gradient_accumulation_shard",
    ),
    str: ("auto_parallel_search_mode", "search_mode", "strategy_ckpt_load_file", "strategy_ckpt_save_file"),
    int: (
        *("device_num", "global_rank", "pipeline_stages", "pipeline_segments"),
        "parallel_optimizer_config.parallel_optimizer_threshold",
    ),
    list: ("all_reduce_fusion_config",),
}
_SEARCHES = ("recursive_programming", "dynamic_programming", "sharding_propagation")
_NAMES = {bool: "true or false", str: "text", int: "a whole number", list: "a list"}
_TYPED = {f"parallel.{name}": kind for kind, names in _KEYWORDS.items() for name in names}
# Of the schedules with warm-up; a number written as 1e-5, without a point, is text in YAML.
_NUMBERS = tuple(f"lr_schedule.{name}" for name in ("learning_rate", "warmup_lr_init", "warmup_ratio", "lr_end"))
_COUNTS = tuple(f"lr_schedule.{name}" for name in ("warmup_steps", "total_steps", "warmup_epochs"))
# Of the older networks' configuration: without and with a default for null.
_DTYPES = ("compute_dtype", "param_init_type", "layernorm_compute_type", "softmax_compute_type", "rotary_dtype")
_OPEN_DTYPES = ("embedding_init_type", "residual_dtype")
_KNOWN_DTYPES = ("float16", "float32", "bfloat16", "int8")
_ABOVE_ZERO = tuple(
    f"moe_config.{name}"
    for name in ("expert_num", "num_experts_chosen", "expert_group_size", "comp_comm_parallel_degree", "update_step")
)
_RECOMPUTED = tuple(
    f"recompute_config.{name}"
    for name in ("parallel_optimizer_comm_recompute", "mp_comm_recompute", "recompute_slice_activation")
)
_THRESHOLD = "parallel.parallel_optimizer_config.parallel_optimizer_threshold"
_OP_SWAP = "swap_config.op_swap"
_SINK_SIZE = "runner_config.sink_size"


def _unknown(facts: RuleContext) -> Any:
    reset = {"callbacks", *(["runner_wrapper"] if resets_wrapper(facts) else [])}
    named = [(section, facts[f"{section}.type"]) for section in _REGISTERED if section not in reset]
    kinds = (key.split(".")[1].partition("#")[0] for key in facts.written if key.startswith("callbacks."))
    named += [("callbacks", kind) for kind in dict.fromkeys(kinds)]
    wrong = [f"{section} {name}" for section, name in named if name and name not in _REGISTERED[section]]
    return wrong and f"{', '.join(wrong)}: no such class is registered"


def _types(facts: RuleContext) -> Any:
    given = {key: facts[key] for key in _TYPED if key in facts.written and (facts.given(key) or _TYPED[key] is str)}
    wrong = [f"{key}={value}: {_NAMES[_TYPED[key]]}" for key, value in given.items() if not _is(value, _TYPED[key])]
    if whole(facts[_THRESHOLD]) and facts[_THRESHOLD] < 0:
        wrong.append(f"{_THRESHOLD}={facts[_THRESHOLD]}: 0 or more")
    mode = facts["parallel.search_mode"]
    if isinstance(mode, str) and mode not in _SEARCHES:
        wrong.append(f"parallel.search_mode={mode}: known are {', '.join(_SEARCHES)}")
    return bool(facts["use_parallel"]) and wrong and "; ".join(wrong)


def _is(value: Any, kind: type) -> bool:
    if kind is int:
        return whole(value)
    return isinstance(value, (list, tuple) if kind is list else kind)


def _sink(facts: RuleContext) -> Any:
    size = facts[_SINK_SIZE]
    sinks = facts["runner_config.sink_mode"] is not False
    return sinks and isinstance(size, int) and size < 1 and size != -1 and f"{_SINK_SIZE} {size}: above 0, or -1"


def _tasks(facts: RuleContext) -> Any:
    sections = {key.partition(".")[0] for key in facts.written}
    alone = [name for name in ("train_dataset", "eval_dataset") if name in sections and f"{name}_task" not in sections]
    return alone and "; ".join(f"{name} without {name}_task" for name in alone)


def _schedule(facts: RuleContext) -> Any:
    wrong = [f"{key}={facts[key]}: a number" for key in _NUMBERS if isinstance(facts[key], str)]
    wrong += [f"{key}={facts[key]}: a whole number" for key in _COUNTS if isinstance(facts[key], (str, float))]
    ratio, epochs = facts["lr_schedule.warmup_ratio"], facts["lr_schedule.warmup_epochs"]
    if isinstance(ratio, (int, float)) and not 0 <= ratio <= 1:
        wrong.append(f"lr_schedule.warmup_ratio={ratio}: from 0 to 1")
    if isinstance(epochs, int) and epochs < 0:
        wrong.append(f"lr_schedule.warmup_epochs={epochs}: 0 or more")
    return wrong and "; ".join(wrong)


def _dtypes(facts: RuleContext) -> Any:
    keys = [MODEL + name for name in (*_DTYPES, *_OPEN_DTYPES)]
    given = {key: facts[key] for key in keys if key in facts.written}
    wrong = [
        f"{key}={value}"
        for key, value in given.items()
        if str(value).lower() not in _KNOWN_DTYPES and not (value is None and key.removeprefix(MODEL) in _OPEN_DTYPES)
    ]
    return wrong and f"{', '.join(wrong)}: known are {', '.join(_KNOWN_DTYPES)}"


def _experts(facts: RuleContext) -> Any:
    given = {key: facts[key] for key in _ABOVE_ZERO if facts.given(key)}
    wrong = [f"{key}={value}" for key, value in given.items() if not whole(value) or value < 1]
    chosen, experts = facts["moe_config.num_experts_chosen"], facts["moe_config.expert_num"]
    if whole(chosen) and (experts is None or whole(experts)) and chosen > (experts or 1):
        wrong.append(f"moe_config.num_experts_chosen={chosen} of {experts or 1}")
    loss = facts["moe_config.aux_loss_factor"]
    if loss is not None and (not isinstance(loss, (int, float)) or not 0 < loss < 1):
        wrong.append(f"moe_config.aux_loss_factor={loss}")
    return wrong and f"{', '.join(wrong)}: counts are above 0, no more are chosen than there are, the weight is below 1"


def _context(facts: RuleContext) -> Any:
    depth, path = facts["context.max_call_depth"], facts["context.save_graphs_path"]
    wrong = []
    if depth is not None and (not whole(depth) or depth < 1):
        wrong.append(f"context.max_call_depth={depth}: a whole number above 0")
    if "context.save_graphs_path" in facts.written and (not isinstance(path, str) or not path):
        wrong.append(f"context.save_graphs_path={path}: the name of a folder")
    if "context.save_graphs" in facts.written and facts["context.save_graphs"] is None:
        wrong.append("context.save_graphs: true, false, or a level")
    if isinstance(facts["context.save_graphs"], str):
        wrong.append(f"context.save_graphs={facts['context.save_graphs']}: true, false, or a level")
    return wrong and "; ".join(wrong)


def _swapped(facts: RuleContext) -> Any:
    swaps = facts[_OP_SWAP]
    below = {key.removeprefix(f"{_OP_SWAP}.") for key in facts.written if key.startswith(f"{_OP_SWAP}.")}
    items = list(swaps) if isinstance(swaps, (list, tuple)) else [dict.fromkeys(below)] if below else []
    items += [swaps] if isinstance(swaps, Mapping) else []
    good = all(isinstance(item, Mapping) and "op_name" in item for item in items)
    return not good and f"{_OP_SWAP} needs op_name, backward_prefetch and layers for each operator"


def _recomputed(facts: RuleContext) -> Any:
    wrong = [f"{key}={facts[key]}" for key in _RECOMPUTED if key in facts.written and not _is(facts[key], bool)]
    return wrong and f"{', '.join(wrong)}: true or false"


def _sections(facts: RuleContext) -> Any:
    missing = [] if any(key.startswith("train_dataset.data_loader") for key in facts.written) else ["train_dataset"]
    named = (f"{MODEL}type", f"{MODEL}model_type", f"{MODEL}architectures", "pretrained_model_dir")
    missing += [] if any(facts[key] for key in named) else [f"{MODEL}type"]
    missing += [] if facts["run_mode"] else ["run_mode"]
    return missing and f"{', '.join(missing)} must stand in the file: without it nothing is trained"


VALUES = (
    Rule(
        id="MF-SECTIONS",
        doc="A file that trains says its mode, its data and the class of its model.",
        source="mindformers 1.6.0 run_mindformer.py; trainer/base_trainer.py:902; tools/register/register.py:296",
        flags=("run_mode", "train_dataset.data_loader.type", f"{MODEL}type"),
        fields=("backend.args",),
        check=_sections,
        reads="*",
        until=OLD,
    ),
    Rule(
        id="MF-RECOMPUTE-SWITCHES",
        doc="Recomputation of communication and slices is switched on or off, and null is neither.",
        source="mindformers 1.6.0 modules/transformer/transformer.py:419-421",
        flags=_RECOMPUTED,
        fields=("backend.args",),
        check=_recomputed,
    ),
    Rule(
        id="MF-DATASET-TASK",
        doc="A data set is built by its task, also one that only evaluation reads.",
        source="mindformers 1.6.0 dataset/utils.py:35,47",
        flags=("train_dataset_task.type", "eval_dataset_task.type"),
        fields=("backend.args",),
        check=_tasks,
        reads="*",
    ),
    Rule(
        id="MF-LR-VALUES",
        doc="Learning rates are numbers, steps are whole numbers, and the share of warm-up lies between 0 and 1.",
        source="mindformers 1.6.0 core/lr/lr_schedule.py:44-48,153; trainer/base_trainer.py:583-589",
        flags=(*_NUMBERS, *_COUNTS),
        fields=("schedule.warmup_steps", "schedule.warmup_fraction", "optimizer.lr"),
        check=_schedule,
    ),
    Rule(
        id="MF-DTYPES",
        doc="The older networks know four data types.",
        source="mindformers 1.6.0 models/utils.py:48-62",
        flags=tuple(MODEL + name for name in (*_DTYPES, *_OPEN_DTYPES)),
        fields=("precision.dtype",),
        when="@dialect=legacy",
        check=_dtypes,
    ),
    Rule(
        id="MF-MOE-VALUES",
        doc="Counts of experts are above 0, not more are chosen than there are, and their loss weighs between 0 and 1.",
        source="mindformers 1.6.0 modules/transformer/moe.py:143-164",
        flags=(*_ABOVE_ZERO, "moe_config.aux_loss_factor"),
        fields=("model.num_experts", "model.num_experts_per_tok", "moe.aux_loss_coeff"),
        when="@dialect=legacy",
        check=_experts,
    ),
    Rule(
        id="MF-CONTEXT-VALUES",
        doc="MindSpore checks the values of its context.",
        source="mindspore 2.7.0 context.py (set_max_call_depth, set_save_graphs, set_save_graphs_path)",
        flags=("context.max_call_depth", "context.save_graphs", "context.save_graphs_path"),
        fields=("backend.args",),
        check=_context,
    ),
    Rule(
        id="MF-OP-SWAP-ITEMS",
        doc="Operators to be swapped are named, each with its layers.",
        source="mindformers 1.6.0 modules/transformer/transformer.py:244-256",
        flags=(_OP_SWAP,),
        fields=("backend.args",),
        check=_swapped,
        reads="*",
        until=OLD,
    ),
    Rule(
        id="MF-INTERLEAVE-TYPE",
        doc="fine_grain_interleave is a count.",
        source="mindformers 1.6.0 tools/check_rules.py:276",
        flags=(MODEL + "fine_grain_interleave",),
        fields=("backend.args",),
        check=lambda facts: isinstance(facts[MODEL + "fine_grain_interleave"], str),
        message="fine_grain_interleave must be a whole number",
    ),
    Rule(
        id="MF-CLASS",
        doc="Sections that build an object name a class that MindFormers has registered.",
        source="mindformers 1.6.0 tools/register/register.py:296-307",
        flags=tuple(f"{section}.type" for section in _REGISTERED),
        fields=("backend.args",),
        check=_unknown,
        reads="*",
        until=OLD,
    ),
    Rule(
        id="MF-PARALLEL-TYPES",
        doc="MindSpore checks the types of its parallel settings, and knows three ways to search for a layout.",
        source="mindspore 2.7.0 context.py:964-970",
        flags=tuple(_TYPED),
        fields=("backend.args",),
        check=_types,
        reads="use_parallel",
    ),
    Rule(
        id="MF-PRECISION-SYNC",
        doc="Deterministic computation is switched on or off.",
        source="mindformers 1.6.0 core/context/validators.py:72-83",
        flags=("train_precision_sync",),
        fields=("backend.args",),
        when="train_precision_sync?",
        check=lambda facts: not isinstance(facts["train_precision_sync"], bool),
        message="train_precision_sync must be true or false",
    ),
    Rule(
        id="MF-RESUME-TYPE",
        doc="resume_training is a switch or the name of a checkpoint; auto_trans_ckpt is a switch.",
        source="mindformers 1.6.0 trainer/trainer.py:1321-1326",
        flags=("resume_training", "auto_trans_ckpt"),
        fields=("backend.args",),
        check=lambda facts: (
            not isinstance(facts["resume_training"], (bool, str, type(None)))
            or not isinstance(facts["auto_trans_ckpt"], (bool, type(None)))
        ),
        message="resume_training must be true, false or a name, auto_trans_ckpt true or false",
    ),
    Rule(
        id="MF-SINK-SIZE",
        doc="Data is sunk in steps of at least one, or all at once (-1).",
        source="mindformers 1.6.0 trainer/utils.py:153-157",
        flags=(_SINK_SIZE, "runner_config.sink_mode"),
        fields=("backend.args",),
        check=_sink,
    ),
)

declare(VALUES, backends=BACKENDS, when=STATIC)
