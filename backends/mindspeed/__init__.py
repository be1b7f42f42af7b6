"""MindSpeed-LLM on Ascend: Megatron-LM's command line with additional arguments."""

from pathlib import Path

from backends.megatron_lm import RULES as MEGATRON_RULES
from backends.megatron_lm.sizes import VOCABULARY_SIZE, default_ffn_size
from backends.megatron_lm.watch import WATCH
from backends.mindspeed.environment import ENVIRONMENT
from backends.mindspeed.support import SUPPORT
from backends.mindspeed.versions import REGISTERED, catalogue
from launcher.mapping.backend import Backend, Entry, late

_HERE = Path(__file__).parent

ENTRY = Entry(
    scripts={"pretrain_gpt.py": "", "posttrain_gpt.py": "", "pretrain_deepseek4.py": "", "pretrain_mamba.py": ""},
    excluded={
        "train_fsdp2.py": "it takes other arguments (YAML sections of its own), which have no mapping",
        "rlhf_gpt.py": "it is a Hydra program over MindSpeed-RL",
        "inference.py": "it does not train",
        "evaluation.py": "it does not train",
        "preprocess_data.py": "it prepares data",
        "convert_ckpt.py": "it converts checkpoints (launch convert)",
        "convert_ckpt_v2.py": "it converts checkpoints (launch convert)",
    },
    renames=_HERE.parent / "megatron_lm" / "renames.json",
    native_only=late("backends.mindspeed.native_only.table:rows"),
    as_typed=(
        "norm-topk-prob",
        "moe-layer-freq",
        "first-k-dense-replace",
        "cp-attention-mask-type",
        "attention-mask-type",
    ),
    markers=(
        "ASCEND_",
        "HCCL_",
        "PYTORCH_NPU_",
        "NPUS_PER_NODE",
        "TASK_QUEUE_ENABLE",
        "/usr/local/Ascend",
        "mindspeed_llm.",
    ),
)

# MindSpeed-LLM's rules, and those of Megatron-LM, which it extends.
RULES = (
    *(
        f"backends.mindspeed.rules.{part}"
        for part in (
            *("context_parallel_sizes", "context_parallel", "recompute", "parallel", "moe", "features", "sizes"),
            *(
                "indexer",
                "conversion",
                "changes",
                "tokenizer",
                "preference",
                "fine_tuning",
                "lora",
                "version_2_1",
                "version_2_2",
                "known_names",
                "data_files",
                "effective",
                "unread",
            ),
        )
    ),
    *MEGATRON_RULES,
)


BACKEND = Backend(
    name="mindspeed",
    title="MindSpeed-LLM",
    versions=REGISTERED.names,
    default_version="26.1.0",
    devices=("npu",),
    table=late("backends.mindspeed.mapping.table:table"),
    parser_source=late("backends.mindspeed.parser_source:parser_source"),
    catalogue=catalogue,
    launch=late("backends.mindspeed.launch:launch"),
    native_cpu="backends.mindspeed.rehearse",
    families=late("backends.mindspeed.families:families"),
    unbuildable=late("backends.mindspeed.families:rows"),
    checkpoint_format="backends.mindspeed.checkpoint",
    adapter_format="backends.mindspeed.adapter",
    stored_classes=("mindspeed.", "mindspeed_llm."),
    default_ffn_size=default_ffn_size,
    vocabulary_size=VOCABULARY_SIZE,
    converted_folder=late("backends.mindspeed.mapping.model:converted_folder"),
    argv=late("backends.mindspeed.launch:argv"),
    computations=late("backends.mindspeed.computations:computations"),
    profile=late("backends.mindspeed.profile:rows"),
    rules=RULES,
    requires=("module:torch_npu", "env:MINDSPEED_LLM_PATH", "env:MINDSPEED_PATH", "env:MEGATRON_LM_PATH"),
    install_hint=(
        "clone Ascend/MindSpeed-LLM (26.1.0), Ascend/MindSpeed (26.1.0_core_r0.12.1) and NVIDIA/Megatron-LM "
        "(core_v0.12.1), install torch_npu and their requirements, load the CANN environment, and export "
        "MINDSPEED_LLM_PATH, MINDSPEED_PATH and MEGATRON_LM_PATH"
    ),
    aliases=REGISTERED.aliases,
    absent=late("backends.megatron_lm.absent:absent"),
    substitutes=late("backends.mindspeed.substitutes:substitutes"),
    entry=ENTRY,
    other_entries=("master-fsdp2",),
    environment=ENVIRONMENT,
    support=SUPPORT,
    launchers=_HERE / "catalogue" / "launchers",
    watch=WATCH,
)
