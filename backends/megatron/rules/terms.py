"""Values that Megatron-SWIFT's rules derive from its options, and the version ranges of those rules."""

from backends.megatron.families import is_multimodal
from launcher.catalogue.versions import in_range
from launcher.rules.registry import RuleContext
from launcher.rules.table import term

NAME = "megatron"
BACKENDS = (NAME,)
FOUR, THREE = "4.0", "3.99"
_STAGES = ("virtual_pipeline_model_parallel_size", "num_virtual_stages_per_pipeline_rank")
_SIZES = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")


def data_parallel(context: RuleContext) -> int | None:
    """Return the data parallel size; None where the sizes do not divide."""
    world, rest = context.job.cluster.world_size, 1
    for name in _SIZES:
        rest *= context[name]
    return world // rest if rest and world % rest == 0 else None


@term(NAME, "chunks", *_STAGES)
def chunks(context: RuleContext) -> int:
    """Return the chunks per stage where an option sets them, else 1."""
    return next((context[name] for name in _STAGES if context[name] is not None), None) or 1


@term(NAME, "lora", "tuner_type", "train_type", "adapters")
def trains_adapters(context: RuleContext) -> bool:
    """Return whether adapters are trained instead of all weights."""
    if not in_range(context.version or "", "3.7", None):  # the option exists there, but all weights are trained
        return False
    return (context["tuner_type"] or context["train_type"] or "full") != "full" or bool(context["adapters"])


@term(NAME, "multimodal", "job.model.hub_id", "job.model.path", "job.model.model_type")
def multimodal(context: RuleContext) -> bool:
    """Return whether the model also reads images, audio or video."""
    return is_multimodal(context.job)
