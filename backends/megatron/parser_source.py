"""Where a checkout of ms-swift, or of a fork of it, has the arguments of `megatron sft|pt|rlhf|export`."""

from launcher.catalogue.checkout.commands import CommandClasses
from launcher.catalogue.checkout.read import ParserSource

CLASSES = CommandClasses(
    commands={
        "sft": ("MegatronSftArguments", "MegatronTrainArguments"),
        "pt": ("MegatronPretrainArguments", "MegatronTrainArguments"),
        "rlhf": ("MegatronRLHFArguments",),
        "export": ("MegatronExportArguments",),
    },
    entry="swift/cli/_megatron/{command}.py",
    # 3.x kept them under argument/ and llm/argument/, 4.x under arguments/ and arguments/ of the package.
    folders=("swift/megatron", "swift/llm/argument", "swift/arguments", "swift/ray", "swift/ray_utils"),
)


def parser_source() -> ParserSource:
    """Return it."""
    return ParserSource(classes=CLASSES)
