"""What runs of Megatron-SWIFT showed, and what mcore-bridge reads from config.json."""

from collections.abc import Mapping
from typing import Any

from backends.megatron.mapping.factories import mapping_of
from backends.megatron.mapping.model import source
from backends.megatron.rules.terms import FOUR, trains_adapters
from launcher.rules.registry import Rule, RuleContext

_BRIDGE = "mcore-bridge 1.6.5 config/parser.py"


def _extra(context: RuleContext) -> Mapping[str, Any]:
    return mapping_of(context["megatron_extra_kwargs"]) or {}


def _initialises(context: RuleContext) -> bool:
    return bool(context["tensor_model_parallel_size"] > 1 and not trains_adapters(context))


def _offline(context: RuleContext) -> bool:
    env = context.job.backend.env
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "MODELSCOPE_OFFLINE")
    return any(str(env.get(name, "0")).lower() in ("1", "true", "on", "yes") for name in names)


def _balances_by_bias(context: RuleContext) -> bool:
    model = context.job.model
    written = {"moe_router_bias_update_rate"} & set(_extra(context)) or context.given("moe_router_bias_update_rate")
    return bool(model.router_expert_bias and source(context.job) and model.pretrained is not False and not written)


def _scores(context: RuleContext) -> bool:
    model = context.job.model
    named = source(context.job) is not None and "moe_router_score_function" not in _extra(context)
    return bool(named and model.model_type == "deepseek_v3" and model.scoring_func == "sigmoid") and (
        not model.router_expert_bias
    )


def _rotates_by_halves(context: RuleContext) -> bool:
    """Return whether a local GLM-5 is loaded; the published files have the key."""
    model = context.job.model
    return bool(model.path and model.model_type == "glm_moe_dsa") and "dsa_indexer_rotary_interleaved" not in _extra(
        context
    )


SEEN = (
    Rule(
        id="SW-SET-INITIALIZATION",
        phase="model",
        severity="change",
        flags=("perform_initialization", "tensor_model_parallel_size"),
        check=lambda context: (
            _initialises(context)
            and context["perform_initialization"] is True
            and context.written["perform_initialization"].origin == "derived"
        ),
        reads="@lora",
        message="perform_initialization false → true: otherwise the gradient norm counts one shard of the "
        "vocabulary only",
        doc="With tensor parallelism the vocabulary's weights are marked as split only where they are initialised.",
        source="megatron-core 0.16.1 tensor_parallel/layers.py:244; seen in runs: norm 7.188 instead of 7.873",
        since=FOUR,
        fields=("parallel.tp",),
    ),
    Rule(
        id="SW-SCORE-HEAD",
        phase="model",
        doc="A reward model's head is in no weights of a language model: without initialisation it is whatever its "
        "memory held, and training may start with a loss that is not a number.",
        source="megatron-core 0.16.1 extensions/transformer_engine.py:309; mcore-bridge 1.6.5 gpt_model.py:108, "
        "bridge/gpt_bridge.py:1835; seen in a rehearsal: NaN in the first backward pass",
        flags=("rlhf_type", "perform_initialization"),
        fields=("task.type", "model.perform_initialization"),
        check=lambda context: (
            context["rlhf_type"] == "rm"
            and not context["perform_initialization"]
            and not (context.given("mcore_model") or context.given("mcore_adapter"))
        ),
        reads="mcore_model mcore_adapter",
        message="perform_initialization false: the reward model's head is not initialised; set "
        "model.perform_initialization=true (loaded weights replace the other initial ones)",
        severity="warning",
        since=FOUR,
    ),
    Rule(
        id="SW-INITIALIZATION-TP",
        phase="model",
        doc="With tensor parallelism and no initialisation, the gradient norm counts one shard of the vocabulary "
        "only: clipping changes and the loss drifts.",
        source="megatron-core 0.16.1 tensor_parallel/layers.py:244,265; seen in runs: norm 7.188 instead of 7.873",
        flags=("perform_initialization", "tensor_model_parallel_size"),
        fields=("parallel.tp",),
        check=lambda context: (
            _initialises(context) and not context["perform_initialization"] and not context["use_megatron_fsdp"]
        ),
        reads="@lora use_megatron_fsdp",
        message="perform_initialization false with tp {tensor_model_parallel_size}: the gradient norm counts one "
        "shard of the vocabulary only; set it to true (loaded weights replace the initial ones)",
        severity="warning",
        since=FOUR,
    ),
    Rule(
        id="SW-LORA-TP-NORM",
        phase="model",
        doc="With tensor parallelism the gradient norm counts the LoRA factors that each rank holds whole once for "
        "every rank, until megatron-core 0.17 marks them as not split: it is too large, and clips more.",
        source="megatron-core 0.16.1 extensions/transformer_engine.py:648; measured: docs/parity.md",
        flags=("tensor_model_parallel_size", "clip_grad"),
        fields=("lora.rank", "parallel.tp", "optimizer.clip_grad"),
        check=lambda context: (
            trains_adapters(context) and context["tensor_model_parallel_size"] > 1 and bool(context["clip_grad"])
        ),
        reads="@lora clip_grad",
        message="LoRA with tp {tensor_model_parallel_size}: until megatron-core 0.17 the gradient norm counts factors "
        "that every rank holds {tensor_model_parallel_size} times, so clip_grad {clip_grad} clips more than without "
        "tensor parallelism",
        severity="warning",
        since="4.1",
    ),
    Rule(
        id="SW-FP32-RESUME",
        phase="launch",
        doc="Resuming the distributed optimizer in fp32 writes into views of leaf tensors, which PyTorch refuses.",
        source="megatron-core 0.16.1 optimizer/distrib_optimizer.py; seen in runs of ms-swift 4.6.0",
        flags=("mcore_model", "torch_dtype", "no_load_optim"),
        fields=("checkpoint.load", "precision.dtype", "checkpoint.no_load_optim"),
        when="job.precision.dtype=fp32 & mcore_model? & finetune=False & use_distributed_optimizer & !no_load_optim",
        message="resuming in fp32 fails when the optimizer is loaded (in-place write to a view of a leaf tensor): "
        "train in bf16, or set checkpoint.no_load_optim=true",
        severity="warning",
        since=FOUR,
    ),
    Rule(
        id="SW-CHECK-MODEL",
        phase="parse",
        doc="swift asks a hub for the model's newest revision, which takes long where there is no network.",
        source="ms-swift 4.6.0 model_args.py check_model; seen in runs: 20 s",
        flags=("check_model",),
        fields=("backend.env",),
        check=lambda context: _offline(context) and context["check_model"] is not False,
        reads="job.backend.env",
        message="the environment is offline, but check_model asks a hub for the newest revision of the model: pass "
        "check_model false",
        severity="warning",
        since="3.7",
    ),
    Rule(
        id="SW-BIAS-RATE",
        phase="model",
        doc="mcore-bridge uses config.json's aux_loss_alpha as the update rate of the expert bias, without a message.",
        source=f"{_BRIDGE}: moe_router_bias_update_rate from aux_loss_alpha",
        flags=("megatron_extra_kwargs",),
        fields=("moe.bias_update_rate", "model.router_expert_bias"),
        check=_balances_by_bias,
        reads="moe_router_bias_update_rate job.model.router_expert_bias job.model.path job.model.hub_id "
        "job.model.pretrained",
        message="mcore-bridge takes aux_loss_alpha, if config.json has it, as moe_router_bias_update_rate: set "
        "moe.bias_update_rate (usually 0.001)",
        severity="warning",
        since="4.3",
    ),
    Rule(
        id="SW-LORA-BIAS",
        phase="model",
        doc="mcore-bridge freezes the expert bias of routers where adapters are trained, whatever its update rate is.",
        source="mcore-bridge 1.6.5 tuners/patcher.py:59, model/modules/topk_router.py:71; measured: docs/parity.md",
        flags=("megatron_extra_kwargs",),
        fields=("moe.bias_update_rate", "lora.rank"),
        check=lambda context: (
            trains_adapters(context) and context.job.model.router_expert_bias and context.job.moe.bias_update_rate != 0
        ),
        reads="@lora job.model.router_expert_bias job.moe.bias_update_rate",
        message="LoRA: the expert bias stays as it is, moe.bias_update_rate has no effect; MindSpeed-LLM moves it "
        "unless moe.bias_update_rate=0",
        severity="warning",
        since="4.1",
    ),
    Rule(
        id="SW-SCORING",
        phase="model",
        doc="mcore-bridge uses softmax where config.json does not set scoring_func.",
        source=f"{_BRIDGE}: moe_router_score_function from scoring_func",
        flags=("megatron_extra_kwargs",),
        fields=("model.scoring_func",),
        check=_scores,
        reads="job.model.path job.model.hub_id job.model.model_type job.model.scoring_func "
        "job.model.router_expert_bias",
        message="the router scores with sigmoid, but mcore-bridge uses softmax if config.json has no scoring_func: "
        "pass megatron_extra_kwargs {{moe_router_score_function: sigmoid}}",
        severity="warning",
        since=FOUR,
    ),
    Rule(
        id="SW-INDEXER-ROTATION",
        phase="model",
        doc="mcore-bridge rotates the indexer of a GLM-5 by halves where config.json has no indexer_rope_interleave.",
        source=f"{_BRIDGE}:83; transformers 5.24 configuration_glm_moe_dsa.py (it has no such key)",
        flags=("megatron_extra_kwargs",),
        fields=("model.path",),
        check=_rotates_by_halves,
        reads="job.model.path job.model.model_type",
        message="if its config.json has no indexer_rope_interleave (transformers' class has no such key), mcore-bridge "
        "rotates the indexer as DeepSeek-V3.2's: write indexer_rope_interleave: true into the file, or pass "
        "megatron_extra_kwargs {{dsa_indexer_rotary_interleaved: true}}",
        severity="warning",
        since="4.3",
    ),
    Rule(
        id="SW-COMPRESSED-CORE",
        phase="launch",
        doc="DeepSeek-V4's compressed attention is in Megatron-core's development branch, in no release up to 0.19.",
        source="mcore-bridge 1.6.5 model/gpts/deepseek_v4.py:102",
        fields=("model.experimental_attention_variant",),
        when="job.model.experimental_attention_variant=dsv4_hybrid",
        message="mcore-bridge builds compressed attention with Megatron-core's development branch only: "
        "pip install git+https://github.com/NVIDIA/Megatron-LM@dev",
        severity="warning",
        since="4.3",
    ),
    Rule(
        id="SW-NPU-EXPERTS",
        phase="model",
        doc="On Ascend devices the grouped kernel takes at most 128 experts of one rank.",
        source="mcore-bridge 1.6.5 config/model_config.py:478",
        flags=("expert_model_parallel_size",),
        when="job.hardware.device=npu & job.model.num_experts!=None",
        check=lambda context: context.job.model.num_experts // max(1, context["expert_model_parallel_size"]) > 128,
        message="more than 128 experts per expert-parallel rank, which Ascend devices do not support: raise "
        "parallel.ep",
        severity="warning",
        since="4.1",
    ),
)
