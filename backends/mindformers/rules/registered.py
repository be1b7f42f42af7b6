"""Classes that MindFormers looks up by their names in its registry, in YAML any text."""

from collections.abc import Mapping
from typing import Any

from backends.mindformers.mapping.support import MODEL
from backends.mindformers.rules.terms import BACKENDS, OLD, STATIC, resets_wrapper
from launcher.catalogue.catalogue import Catalogue
from launcher.catalogue.versions import in_range
from launcher.rules.registry import Rule, RuleContext
from launcher.rules.table import declare


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# What its registry holds after `import mindformers.trainer`, by section, except what is no callback (RunContext …).
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
    # MindSpore's own, the same from 2.7.0 to 2.10.0 (train/callback/__init__.py); MindFormers' are in the catalogue.
    "callbacks": _words(
        "BackupAndRestore Callback EarlyStopping FlopsUtilizationCollector History LambdaCallback "
        "LearningRateScheduler LossMonitor ModelCheckpoint OnRequestExit ReduceLROnPlateau SummaryCollector "
        "SummaryLandscape TimeMonitor TrainFaultTolerance"
    ),
}
# What later versions register, too, and since which.
_LATER: Mapping[str, Mapping[str, str]] = {
    "optimizer": {"PmaAdamW": "1.7", "Muon": "1.8"},
    "train_dataset.data_loader": {"HFDataLoader": "1.7", "OrderedIndexDataLoader": "2.1"},
}
_REGISTER = "auto_register"
_CALLBACKS = "callbacks."
# Classes of older models' configuration; mcore models are found by model_type.
_CONFIGS = ("ChatGLM2Config", "LlamaConfig", "Qwen2Config")


def _unregistered(context: RuleContext) -> str:
    old = context.version == OLD
    reset = {"callbacks", *(["runner_wrapper"] if resets_wrapper(context) else [])}
    named = [(section, context[f"{section}.type"]) for section in _REGISTERED if section not in reset]
    written = (key for key in context.written if key.startswith(_CALLBACKS))
    kinds = dict.fromkeys(key.split(".")[1].partition("#")[0] for key in written)
    named += [("callbacks", kind) for kind in kinds]
    wrong = [f"{section} {name}" for section, name in named if name and not _is_registered(section, name, context)]
    wrong += ["callbacks ''"] if "" in kinds else []
    model = context[f"{MODEL}type"]
    # What the older networks of later versions register besides is not known here.
    if old and context["use_legacy"] is not False and model and model not in _CONFIGS:
        wrong.append(f"{MODEL}type {model}")
    return ", ".join(wrong)


def _is_registered(section: str, name: str, context: RuleContext) -> bool:
    if section == "callbacks":
        return name in registered_callbacks(context.catalogue)
    since = _LATER.get(section, {}).get(name)
    later = since is not None and in_range(context.version or "", since, None)
    return name in _REGISTERED[section] or later


def registered_callbacks(catalogue: Catalogue | None) -> frozenset[str]:
    """Return the callbacks of a version: MindFormers' own have a section of their keys each in its catalogue."""
    sections = catalogue.open_sections if catalogue is not None else ()
    own = {each.removeprefix(_CALLBACKS) for each in sections if each.startswith(_CALLBACKS)}
    return _REGISTERED["callbacks"] | own


def _registers(context: RuleContext) -> bool:
    """Return whether the file imports modules that may register classes of their own."""
    return any(key.rpartition(".")[2] == _REGISTER for key in context.written)


def _unknown(context: RuleContext) -> Any:
    wrong = "" if _registers(context) else _unregistered(context)
    return wrong and f"{wrong}: no such class is registered"


def _outside(context: RuleContext) -> Any:
    wrong = _unregistered(context) if _registers(context) else ""
    return (
        wrong
        and f"{wrong}: not a class of MindFormers; a module of --register_path, which is not read here, may define it"
    )


declare(
    (
        Rule(
            id="MF-CLASS",
            doc="Sections that build an object name a class that MindFormers has registered.",
            source="mindformers 1.6.0 tools/register/register.py:296-307; 2.1.0 register.py:286; "
            "core/callback/build_callback.py:71-76",
            flags=tuple(f"{section}.type" for section in _REGISTERED),
            fields=("backend.args",),
            check=_unknown,
            reads="*",
        ),
        Rule(
            id="MF-CLASS-OUTSIDE",
            doc="A class of a module that auto_register imports is known when training starts, not before.",
            source="mindformers 1.6.0 tools/register/register.py:371,456-472",
            flags=tuple(f"{section}.type" for section in _REGISTERED),
            fields=("backend.args",),
            check=_outside,
            reads="*",
            severity="warning",
        ),
    ),
    backends=BACKENDS,
    when=STATIC,
)
