"""Plain Megatron-LM, which MindSpeed-LLM extends and rehearsals run."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from backends.megatron_lm.environment import ENVIRONMENT
from backends.megatron_lm.other_programs import OTHER_PROGRAMS
from backends.megatron_lm.sizes import VOCABULARY_SIZE, default_ffn_size
from backends.megatron_lm.support import SUPPORT
from backends.megatron_lm.watch import WATCH
from launcher.catalogue.registered import registered
from launcher.job import Job
from launcher.mapping.backend import Backend, Entry, late

if TYPE_CHECKING:
    from launcher.catalogue.catalogue import Catalogue

_HERE = Path(__file__).parent
_REGISTERED = registered(_HERE / "versions.json")


@cache
def _catalogue(version: str) -> "Catalogue":
    from launcher.catalogue.catalogue import load

    return load(_HERE / "catalogue" / f"{version}.json")


# Names of TransformerConfig in `--yaml-cfg` files (yaml_arguments.py:407 core_transformer_config_from_yaml @0.16.1).
_STORED = {
    "num_moe_experts": "num_experts",
    "activation_func=swiglu": "swiglu",
    "activation_func=squaredrelu": "squared_relu",
    "activation_func=gelu": "",
}

ENTRY = Entry(
    scripts={"pretrain_gpt.py": "", "pretrain_mamba.py": ""},
    excluded=OTHER_PROGRAMS,
    fork_options={"--patch-tokenizer-type": "Pai-Megatron-Patch"},
    native_only=late("backends.megatron_lm.native_only.table:rows"),
    arguments_section=("MODEL_ARGS", "ENV_VARS"),
    stored_config="yaml-cfg",
    stored=_STORED,
    renames=_HERE / "renames.json",
    markers=("NCCL_", "NVTE_", "CUDA_VISIBLE_DEVICES", "/workspace/megatron", "GPUS_PER_NODE"),
)

RULES = tuple(
    f"backends.megatron_lm.rules.{part}"
    for part in (
        *(
            "arguments",
            "state",
            "plain",
            "balance_weight",
            "config",
            "config_15",
            "config_16",
            "config_17",
            "config_18",
            "config_19",
            "known_names",
            "data_files",
            "reinforcement",
            "sizes",
            "layer_patterns",
            "optimizer_instances",
            "rampup",
            "defaults",
        ),
        *(
            "effective.layout",
            "effective.model",
            "effective.training",
            "effective.since_14",
            "effective.since_17",
            "effective.since_18",
            "effective.since_19",
            "effective.unread",
        ),
    )
)


def _converted_folder(job: Job, version: str) -> str | None:
    return "" if job.model.starts_from_weights else None


BACKEND = Backend(
    name="megatron_lm",
    title="Megatron-LM",
    versions=_REGISTERED.names,
    default_version="0.16.1",
    devices=("cuda",),
    table=late("backends.megatron_lm.mapping.table:table"),
    catalogue=_catalogue,
    parser_source=late("backends.megatron_lm.parser_source:parser_source"),
    launch=late("backends.megatron_lm.launch:launch"),
    native_cpu="backends.megatron_lm.rehearse",
    described_by=("simumax",),
    families=late("backends.megatron_lm.families:families"),
    checkpoint_format="launcher.convert.formats.torch_dist",
    also_loads=("launcher.convert.formats.legacy",),
    unbuildable=late("backends.megatron_lm.families:rows"),
    default_ffn_size=default_ffn_size,
    vocabulary_size=VOCABULARY_SIZE,
    converted_folder=_converted_folder,
    argv=late("backends.megatron_lm.launch:argv"),
    computations=late("backends.megatron_lm.computations:computations"),
    profile=late("backends.megatron_lm.profile:rows"),
    rules=RULES,
    requires=("module:transformer_engine", "env:MEGATRON_LM_PATH"),
    install_hint=(
        "git clone --branch core_v0.16.1 https://github.com/NVIDIA/Megatron-LM, pip install its requirements and "
        "transformer-engine[pytorch], export MEGATRON_LM_PATH=<the checkout>"
    ),
    aliases=_REGISTERED.aliases,
    absent=late("backends.megatron_lm.absent:absent"),
    substitutes=late("backends.megatron_lm.substitutes:substitutes"),
    entry=ENTRY,
    environment=ENVIRONMENT,
    support=SUPPORT,
    launchers=_HERE / "catalogue" / "launchers",
    watch=WATCH,
)
