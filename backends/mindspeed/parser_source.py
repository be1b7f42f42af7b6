"""Where a checkout of MindSpeed-LLM, or of a fork of it (ModelLink too), adds its arguments to Megatron-LM's parser."""

from backends.megatron_lm import parser_source as megatron_lm
from launcher.catalogue.checkout.read import ParserSource

# process_args up to 2.1.0, with features beside it since 2.0; where process_args_v2 stands beside it, that one is
# called, which takes the features alone (mindspeed_llm/training/arguments.py:40 @2.2.0).
_PARSER = ParserSource(
    files=("mindspeed_llm/training/arguments.py", "modellink/training/arguments.py", "modellink/arguments.py"),
    functions=("process_args_v2", "process_args"),
    extends="MindSpeed-LLM/",
    within=megatron_lm.parser_source(),
    features=("mindspeed_llm/features_manager/__init__.py", "create_features_list"),
    feature_method="register_args",
    choice_method="add_parser_argument_choices_value",
    # It calls that method of each feature.
    outside={"mindspeed.features_manager.features_manager.MindSpeedFeaturesManager.register_features_args": ()},
    types=megatron_lm.parser_source().types,
)


def parser_source() -> ParserSource:
    """Return it."""
    return _PARSER
