"""Megatron-SWIFT (ms-swift): `megatron sft|pt|rlhf`, from a commit before 3.5 (54e9c505) to 4.6."""

from pathlib import Path

from backends.megatron.environment import ENVIRONMENT
from backends.megatron.support import SUPPORT
from backends.megatron.versions import REGISTERED, RENAMES, catalogue
from backends.megatron_lm.watch import WATCH
from launcher.mapping.backend import Backend, Entry, late
from launcher.plan.start import NUMBER, Watch

_TRAINS = ("sft", "pt", "rlhf")
ENTRY = Entry(
    programs={"megatron": _TRAINS},
    scripts={f"_megatron/{command}.py": command for command in _TRAINS},
    excluded={
        "megatron export": "it converts checkpoints (launch convert)",
        **{
            f"swift {command}": "it runs on transformers, not on Megatron"
            for command in (
                "sft",
                "pt",
                "rlhf",
                "infer",
                "export",
                "deploy",
                "rollout",
                "eval",
                "sample",
                "app",
                "web-ui",
            )
        },
    },
    # swift/cli/_megatron/rlhf.py:6 @v4.5.2, since 4.3
    drivers={
        ("megatron rlhf", "--use_ray"): "it starts Ray's driver, whose file has a section of arguments for each role "
        "(train, rollout, teacher)"
    },
    command_argument="command",
    config=("config",),
    positional_config=True,
    environment_cluster=True,
    native_only=late("backends.megatron.native_only.table:rows"),
    markers=("SWIFT_", "MODELSCOPE_", "MEGATRON_LM_PATH"),
    renames=RENAMES,
)

BACKEND = Backend(
    name="megatron",
    title="Megatron-SWIFT",
    versions=REGISTERED.names,
    default_version="4.6.0",
    devices=("cuda", "npu"),
    table=late("backends.megatron.mapping.table:table"),
    catalogue=catalogue,
    parser_source=late("backends.megatron.parser_source:parser_source"),
    launch=late("backends.megatron.launch:launch"),
    native_cpu="backends.megatron.rehearse",
    default_ffn_size=late("backends.megatron.sizes:default_ffn_size"),
    families=late("backends.megatron.families:families"),
    checkpoint_format="launcher.convert.formats.torch_dist",
    adapter_format="backends.megatron.adapter",
    unbuildable=late("backends.megatron.families:rows"),
    stacks_layers=late("backends.megatron.families:stacks_layers"),
    converted_folder=late("backends.megatron.mapping.model:converted_folder"),
    argv=late("backends.megatron.launch:argv"),
    command=late("backends.megatron.launch:command"),
    prepare=late("backends.megatron.mapping.merge:prepare"),
    computations=late("backends.megatron_lm.computations:computations"),
    profile=late("backends.megatron.profile:rows"),
    rules=tuple(
        f"backends.megatron.rules.{name}"
        for name in ("arguments", "core_config", "rlhf", "validate_args", "known_names", "data_files", "changes")
    ),
    reads_hub=True,
    requires=("module:swift", "module:mcore_bridge"),
    install_hint="pip install 'launch-llm[swift]' (ms-swift 4.6.0, mcore-bridge 1.6.5); with GPUs transformer-engine",
    aliases={**REGISTERED.aliases, "seed": "3.5-dev"},
    absent=late("backends.megatron.absent:absent"),
    multimodal=late("backends.megatron.families:is_multimodal"),
    substitutes=late("backends.megatron.substitutes:substitutes"),
    entry=ENTRY,
    environment=ENVIRONMENT,
    support=SUPPORT,
    launchers=Path(__file__).parent / "catalogue" / "launchers",
    watch=Watch(
        # swift/megatron/callbacks/print.py, on_log; trainers/base.py, save_checkpoint @4.6.0; before 4.0 as Megatron-LM
        iteration_line=r"iteration('?: '| +)[0-9]+/ *[0-9]+",
        trackers=(
            ("*/checkpoint-*[0-9]", "latest_checkpointed_iteration.txt"),
            ("*", "latest_checkpointed_iteration.txt"),
        ),
        figures=(
            ("iteration", rf"'iteration': '({NUMBER})/", 1.0),
            ("iterations", rf"'iteration': '[0-9]+/({NUMBER})", 1.0),
            ("loss", rf"'loss': ({NUMBER})", 1.0),
            ("step_s", rf"'train_speed\(s/it\)': ({NUMBER})", 1.0),
            ("grad_norm", rf"'grad_norm': ({NUMBER})", 1.0),
            ("memory_gib", rf"'memory\(GiB\)': ({NUMBER})", 1.0),
            *WATCH.figures,
        ),
    ),
)
