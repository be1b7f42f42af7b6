"""Defaults that depend on other keys of a file: of its sections, of its callbacks and of the class of its model."""

from collections.abc import Mapping

from backends.mindformers.class_defaults import LLAMA_WIDTH, legacy_defaults, missing_defaults
from backends.mindformers.mapping.config_defaults import omitted_settings
from backends.mindformers.mapping.support import MODEL
from backends.mindformers.rules.effective.tables import KIND, MCORE, fills
from backends.mindformers.rules.terms import BACKENDS
from launcher.job import Value
from launcher.rules.registry import RuleContext
from launcher.rules.table import declare, unread

_CALLBACKS, _DEFAULT = "callbacks.", "MFLossMonitor"


def _callbacks(context: RuleContext) -> Mapping[str, Value]:
    """Return the type of each callback: a name of a section, and of the default section where there is none."""
    kinds = {key.split(".")[1] for key in context.values if key.startswith(_CALLBACKS)} or {_DEFAULT}
    return {f"{_CALLBACKS}{kind}.type": kind.partition("#")[0] for kind in kinds}


declare(
    (
        fills(
            "MF-FILL-SECTIONS",
            "",
            lambda context: omitted_settings(context.values),
            "Sections of the learning rate, the optimizer and the training step have defaults as a whole and by class.",
            "mindformers 2.1.0 tools/register/template.py:475-511; core/optim/adamw.py:158; wrapper/wrapper.py:235",
            "lr_schedule.type optimizer.type runner_wrapper.type *",
        ),
        fills(
            "MF-FILL-CLASS",
            f"{MCORE} & !pretrained_model_dir",
            lambda context: missing_defaults(context.values),
            "What a file omits of the model is the default of the model's class.",
            "mindformers 2.1.0 models/*/configuration_*.py",
            f"{KIND} *",
        ),
        fills(
            "MF-FILL-LEGACY-CLASS",
            "use_legacy!=False",
            lambda context: legacy_defaults(context.values),
            "What a file omits of a legacy model is the default of the model's class.",
            "mindformers 1.6.0 models/llama/llama_config.py; models/glm2/glm2_config.py",
            f"{MODEL}type *",
        ),
    ),
    backends=BACKENDS,
    phase="parse",
)
declare(
    (
        unread(
            "MF-UNREAD-CALLBACK-TYPES",
            "",
            (),
            "A callback's section is named by its type; without callbacks there is the default one.",
            "mindformers 2.1.0 tools/register/template.py:523",
            equivalent=_callbacks,
            reads="*",
        ),
        unread(
            "MF-UNREAD-LLAMA-WIDTH",
            f"use_legacy!=False & {MODEL}type=LlamaConfig & {MODEL}intermediate_size?",
            LLAMA_WIDTH,
            "intermediate_size takes precedence over a computed width.",
            "mindformers 1.6.0 models/llama/llama.py:856-866",
        ),
    ),
    backends=BACKENDS,
    phase="launch",
)
