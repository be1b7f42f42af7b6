"""Names that Megatron-LM looks up after its parser took them as any text."""

from backends.megatron_lm.rules.versions import (
    BACKENDS,
    EVERY,
    ONLY_16,
    PLAIN,
    SINCE_12,
    SINCE_13,
    SINCE_14,
    SINCE_15,
    SINCE_17,
    SINCE_19,
    config,
    configured,
    validated,
)
from launcher.rules.known_names import Names, known_names, named
from launcher.rules.table import declare

_RECOMPUTED: Names = {
    **named("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", versions=EVERY),
    **named("shared_experts", versions={"megatron_lm": (SINCE_14, None)}),
    **named("gdn_norm_out", versions={"megatron_lm": (SINCE_19, None)}),
}
_OFFLOADED: Names = {
    **named("core_attn", "attn_proj", "expert_fc1", "moe_act", "attn_norm", "mlp_norm", "qkv_linear"),
    **named("fused_group_mlp", versions=(SINCE_19, None)),
}
_PROMPTS: Names = {
    **named("nemotron-h-aligned"),
    **named("nemotron-nano-v2", versions=(SINCE_15, None)),
    **named("identity", "default", versions=(SINCE_17, None)),
}
# Of all releases of emerging-optimizers up to 0.4.0 and its main branch of 2026-08; custom needs coefficients, which
# Megatron-LM does not hand on.
MUON_COEFFICIENTS = named("simple", "quintic", "polar_express", "aol", "cans", "deepseekv4", "cubic5")
MUON_DOC = "Muon's iteration has these sets of coefficients."
CONTEXT_COMMUNICATION = named("p2p", "all_gather", "a2a", "a2a+p2p")
CONTEXT_DOC = "Transformer Engine has these ways of context-parallel communication."
CONTEXT_SOURCE = "Transformer Engine 2.9, attn_forward_func_with_cp of context_parallel"

# fmt: off
declare((
    known_names("MLM-RC-MODULES", "recompute-modules", _RECOMPUTED,
                "Selective recomputation accepts only known module names.",
                f"{config(730, 1208)}; {configured('0.19.0', 1768)}", shown="recompute.modules",
                then="recompute-granularity!=selective & !recompute-activations"),
), backends=BACKENDS, versions=SINCE_12)
declare((
    known_names("MLM-FINE-OFFLOAD-NAMES", "offload-modules", _OFFLOADED,
                "Only these activations are offloaded by name.", f"{config('', 1282)}; {configured('0.19.0', 1853)}",
                shown="--offload-modules", when="fine-grained-activation-offloading", since=ONLY_16[0]),
    known_names("MLM-CP-COMM-NAMES", "cp-comm-type", CONTEXT_COMMUNICATION,
                CONTEXT_DOC, CONTEXT_SOURCE, shown="--cp-comm-type",
                when="context-parallel-size>1 & !experimental-attention-variant?"),
    known_names("MLM-SFT-PROMPT", "sft-tokenizer-prompt-format", _PROMPTS,
                "The tokenizer for fine-tuning has these prompt formats.",
                "Megatron-LM core_v0.13.1 megatron/training/tokenizer/sft_tokenizer.py:53; core_v0.19.0 "
                "megatron/core/tokenizers/text/libraries/sft_tokenizer.py:107", shown="--sft-tokenizer-prompt-format",
                when="tokenizer-type=SFTTokenizer", since=SINCE_13),
    known_names("MLM-MUON-COEFFICIENTS", "muon-coefficient-type", MUON_COEFFICIENTS, MUON_DOC,
                f"{validated('0.19.0', 2533)}; emerging-optimizers 0.4.0, newton_schulz of muon_utils",
                shown="--muon-coefficient-type", when="optimizer=muon|dist_muon|adaptive_muon", since=SINCE_17),
), backends=PLAIN)
# fmt: on
