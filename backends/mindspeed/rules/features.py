"""Constraints between MindSpeed-LLM's features: memory, attention, checkpoints, optimizer, FP8 and others."""

from backends.mindspeed.rules.tables import FEATURES, LLM, MINDSPEED, OLD_ARGUMENTS, SINCE, excludes
from launcher.rules.registry import Rule, RuleContext
from launcher.rules.table import declare, needs, never

_MLA = f"{LLM}/transformer/multi_latent_attention/mla_feature.py"
_DSA = f"{LLM}/transformer/multi_latent_attention/dsa_indexer_feature.py"
_MHC = f"{LLM}/transformer/mhc_feature.py"
_ROTARY = f"{LLM}/common/rotary.py"
_CONVERT = f"{LLM}/convert_checkpoint/convert_checkpoint.py"
_HA = f"{LLM}/high_availability/high_availability.py"
_MUON = f"{LLM}/optimizer/muon_optimizer_feature.py"
_LOW = f"{LLM}/low_precision/low_precision_optimizer_feature.py"
_TE = f"{LLM}/megatron_basic/transformer_engine_basic.py"


def _sizes(context: RuleContext) -> str:
    wrong = [word for word in context.items("virtual-optimizer") if word != "all" and not _is_float(word)]
    return f"--virtual-optimizer {wrong[0]} must be all or a number (GiB)" if wrong else ""


def _is_float(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


# fmt: off
declare((
    Rule(
        id="MS-VIRTUAL-OPTIMIZER",
        doc="The memory of optimizer states that are swapped out is all, or a number of GiB.",
        source=f"{FEATURES}/optimizer/virtual_optimizer.py:21",
        phase="parse",
        when="virtual-optimizer?",
        check=_sizes,
    ),
    Rule(
        id="MS-WINDOW-MASK",
        doc="A window in every second layer is applied to the mask that the data loader makes; without one, all layers "
        "attend to everything.",
        source="MindSpeed-LLM 26.1.0 mindspeed_llm/tasks/models/transformer/transformer_layer.py:77",
        when="interleave-sliding-window? & no-create-attention-mask-in-dataloader",
        message="the window of {interleave-sliding-window} tokens is ignored: the data loader makes no attention mask; "
        "works: parallel.cp_mask_type=general",
        flags=("interleave-sliding-window", "no-create-attention-mask-in-dataloader", "attention-mask-type"),
        fields=("model.sliding_window", "parallel.cp_mask_type"),
        stricter=True,
        reason="validation accepts it; measured with launch parity (docs/parity.md)",
    ),
    needs("MS-REUSE-FP32-BF16", "reuse-fp32-param", "bf16",
          "Sharing memory between weights and their fp32 copy needs bf16.",
          f"{FEATURES}/memory/reuse_fp32_param.py:19; {OLD_ARGUMENTS}:1219"),
    never("MS-SWAP-OPTIMIZER-REUSE", "swap-optimizer & reuse-fp32-param",
          "Optimizer swapping does not support weights that share memory with their fp32 copy.",
          f"{FEATURES}/optimizer/swap_optimizer_feature.py:21; {OLD_ARGUMENTS}:1221"),
    needs("MS-MLA-OVERLAP-SPLIT", "mla-up-proj-tp-overlap & multi-latent-attention", "mla-mm-split",
          "The up-projection's communication is overlapped between its split products.",
          f"{_MLA}:56; {OLD_ARGUMENTS}:1101"),
    needs("MS-MLA-OVERLAP-SP", "mla-up-proj-tp-overlap & multi-latent-attention",
          "sequence-parallel & tensor-model-parallel-size>1",
          "The up-projection's communication is that of sequence parallelism, which needs tp above 1.",
          f"{_MLA}:58; {OLD_ARGUMENTS}:1102"),
    never("MS-MLA-RC-MEMORY", "recompute-mla-up-proj & mla-zero-memory & multi-latent-attention",
          "Both avoid saving the output of the up-projection: keep one.", f"{_MLA}:63; {OLD_ARGUMENTS}:1105"),
    needs("MS-MLA-SWAP-DUALPIPE", "mla-swap-core-attn-out & multi-latent-attention", "schedules-method=dualpipev",
          "Swapping the output of multi-latent attention needs the DualPipeV schedule.",
          f"{_MLA}:66; {OLD_ARGUMENTS}:1108"),
    needs("MS-MLA-SWAP-OVERLAP", "mla-swap-core-attn-out & multi-latent-attention & schedules-method=dualpipev",
          "moe-fb-overlap",
          "Swapping the output of multi-latent attention needs moe-fb-overlap.", f"{_MLA}:68; {OLD_ARGUMENTS}:1110"),
    never("MS-MLA-PADDING", "multi-latent-attention & padded-base-length<1",
          "The base of head padding in multi-latent attention must be positive.", f"{_MLA}:53; {OLD_ARGUMENTS}:1091"),
    needs("MS-LONGROPE-LENGTH", "rope-scaling-type=longrope", "rope-scaling-original-max-position-embeddings?",
          "LongRoPE needs the original maximum length.", f"{_ROTARY}:71; {OLD_ARGUMENTS}:1433"),
    needs("MS-LONGROPE-LONG", "rope-scaling-type=longrope", "long-factor?",
          "LongRoPE needs its long and short scaling factors.", f"{_ROTARY}:74; {OLD_ARGUMENTS}:1436"),
    needs("MS-LONGROPE-SHORT", "rope-scaling-type=longrope", "short-factor?",
          "LongRoPE needs its long and short scaling factors.", f"{_ROTARY}:77; {OLD_ARGUMENTS}:1441"),
    needs("MS-LONGROPE-SCALE", "rope-scaling-type=longrope & long-mscale?", "short-mscale?",
          "LongRoPE needs both mscale factors, long and short.", f"{_ROTARY}:80; {OLD_ARGUMENTS}:1446"),
    needs("MS-LONGROPE-SCALE-SHORT", "rope-scaling-type=longrope & short-mscale?", "long-mscale?",
          "LongRoPE needs both mscale factors, long and short.", f"{_ROTARY}:80; {OLD_ARGUMENTS}:1446"),
    never("MS-CHAT-TEMPLATE", "prompt-type? & hf-chat-template",
          "The chat template is a named one or that of the tokenizer, not both.",
          f"{LLM}/inference/inference.py:15; {OLD_ARGUMENTS}:1044"),
    never("MS-HISTORY-TURNS", "history-turns<0",
          "The number of remembered chat turns is zero or more.",
          f"{LLM}/inference/inference.py:18; {OLD_ARGUMENTS}:1047"),
), backends=MINDSPEED)
declare((
    never("MS-REUSE-FP32-EMA", "reuse-fp32-param & optimizer-selection=fused_ema_adamw",
          "The EMA optimizer keeps a separate copy of the weights in fp32.",
          f"{FEATURES}/memory/reuse_fp32_param.py:24"),
    needs("MS-SWAP-OPTIMIZER-DISTRIBUTED", "swap-optimizer & optimizer!=dist_muon", "use-distributed-optimizer",
          "Swapping moves the shards of a distributed optimizer.",
          f"{FEATURES}/optimizer/swap_optimizer_feature.py:27", since="26.0"),
    never("MS-SWAP-OPTIMIZER-STATES", "swap-optimizer & quant-states?",
          "Optimizer swapping does not support states in low precision.", f"{_LOW}:82", since="26.1"),
    never("MS-SWAP-OPTIMIZER-GRADS", "swap-optimizer & quant-grads",
          "Optimizer swapping does not support gradients in low precision.", f"{_LOW}:82", since="26.1"),
    needs("MS-QUANT-GRADS-OVERLAP", "quant-grads & moe-fb-overlap", "no-gradient-accumulation-fusion",
          "Gradients in low precision with moe-fb-overlap exclude fused gradient accumulation.", f"{_LOW}:74",
          since="26.0"),
    never("MS-SPARSE-MODE", "use-flash-attn & sparse-mode!=0|2",
          "Flash attention supports the sparse modes 0 and 2.",
          f"{FEATURES}/transformer/flash_attention/fusion_attention_v1_feature.py:56"),
    needs("MS-NEAT-PACK", "neat-pack", "reset-attention-mask",
          "Packed samples need an attention mask that ends with each sample.",
          f"{LLM}/megatron_basic/training_basic.py:55", since="2.3"),
    never("MS-ALIBI-FUSION", "alibi-fusion-attn-type? & alibi-fusion-attn-type!=0|2",
          "Fused ALiBi attention supports the types 0 and 2.",
          f"{FEATURES}/transformer/flash_attention/alibi_feature.py:72"),
    needs("MS-DSA-MLA", "enable-dsa-indexer", "multi-latent-attention",
          "DSA supports multi-latent attention only.", f"{_DSA}:105", since="2.3"),
    needs("MS-DSA-FLASH", "enable-dsa-indexer & context-parallel-size<=1", "use-flash-attn",
          "DSA supports flash attention only.", f"{_DSA}:109", since="2.3"),
    needs("MS-DSA-CP", "enable-dsa-indexer & context-parallel-size>1",
          "context-parallel-algo=ulysses_cp_algo|kvallgather_cp_algo",
          "DSA supports two algorithms of context parallelism: ulysses and kvallgather.", f"{_DSA}:114", since="26.0"),
    needs("MS-DSA-PACKED", "enable-dsa-indexer & reset-attention-mask", "use-fused-lightning-indexer & "
          "use-sparse-flash-attn or use-fused-lightning-indexer-loss & use-sparse-flash-attn",
          "Packed samples need the fused indexer and sparse flash attention.", f"{_DSA}:116-121", since="26.1",
          works=(("backend.args.use-fused-lightning-indexer=true", "backend.args.use-sparse-flash-attn=true"),)),
    needs("MS-MHC-MLA", "enable-mhc", "multi-latent-attention",
          "Hyper-connections support multi-latent attention only.", f"{_MHC}:54", since="26.1"),
    needs("MS-MHC-FLASH", "enable-mhc & context-parallel-size<=1", "use-flash-attn",
          "Hyper-connections support flash attention only.", f"{_MHC}:58", since="26.1"),
    needs("MS-MHC-CP", "enable-mhc & context-parallel-size>1",
          "context-parallel-algo=ulysses_cp_algo|kvallgather_cp_algo",
          "Hyper-connections support two algorithms of context parallelism: ulysses and kvallgather.", f"{_MHC}:61",
          since="26.1"),
    needs("MS-MHC-STREAMS", "enable-mhc & use-fused-mhc", "hc-mult=4",
          "The fused kernel supports four residual streams only.", f"{_MHC}:63", since="26.1"),
    needs("MS-MHC-ITERATIONS", "enable-mhc & use-fused-mhc", "hc-sinkhorn-iters=20",
          "The fused kernel supports 20 Sinkhorn iterations only.", f"{_MHC}:65", since="26.1"),
    needs("MS-CONVERT-FORMAT", "enable-hf2mg-convert", "ckpt-format!=torch_dist",
          "Conversion writes the format torch; the default, torch_dist, must be overridden.",
          f"{_CONVERT}:114", since="26.1"),
    needs("MS-CONVERT-LOAD", "enable-hf2mg-convert", "load",
          "Weights are converted from the directory that --load names.", f"{_CONVERT}:143", since="26.0"),
    needs("MS-CONVERT-SAVE", "enable-mg2hf-convert", "save",
          "Weights are converted back into the directory that --save names.", f"{_CONVERT}:146", since="26.0"),
    never("MS-CONVERT-LORA", "enable-mg2hf-convert & lora-target-modules",
          "LoRA adapters cannot be converted back.", f"{_CONVERT}:149", since="26.0"),
    needs("MS-WANDB", "wandb-exp-name", "use-wandb",
          "The name of a run needs Weights & Biases to be enabled.", f"{LLM}/dpo/dpo.py:12"),
    never("MS-PROFILE-START", "profile-step-start<1",
          "Profiling starts at step 1 at the earliest.", f"{LLM}/functional/profiling.py:36"),
    never("MS-MUON-FP16", "optimizer=muon|dist_muon & fp16", "Muon does not train in fp16.", f"{_MUON}:134",
          since="26.1"),
    *excludes("MS-MUON", "optimizer=muon|dist_muon", ("use-custom-fsdp", "use-torch-fsdp2"), "Muon", f"{_MUON}:136",
          since="26.1"),
    never("MS-EMA-LOW", "optimizer-selection=fused_ema_adamw & ema-decay<0",
          "The factor ema_decay is between 0 and 1.", f"{FEATURES}/optimizer/fused_ema_adamw_feature.py:19"),
    never("MS-EMA-HIGH", "ema-decay>1",
          "The factor ema_decay is between 0 and 1.", f"{FEATURES}/optimizer/fused_ema_adamw_feature.py:19"),
    needs("MS-HA-REPAIR", "enable-hbmfault-repair", "enable-high-availability",
          "Repairing memory faults is a part of high availability.", f"{_HA}:40"),
    needs("MS-HA-FORMAT", "enable-high-availability", "ckpt-format=torch",
          "High availability does not write distributed checkpoints.", f"{_HA}:44"),
    *excludes("MS-HA", "enable-high-availability",
              ("swap-attention", "disable-gloo-group", "swap-optimizer", "lora-target-modules"), "High availability",
              f"{_HA}:46-77"),
    needs("MS-ELASTIC-HA", "enable-elastic-training", "enable-high-availability",
          "Elastic training is a part of high availability.", f"{_HA}:56"),
    needs("MS-ELASTIC-DISTRIBUTED", "enable-elastic-training", "use-distributed-optimizer",
          "Elastic training moves the shards of the distributed optimizer.", f"{_HA}:60"),
    *excludes("MS-ELASTIC", "enable-elastic-training", ("use-custom-fsdp", "reuse-fp32-param"), "Elastic training",
              f"{_HA}:64-68"),
    never("MS-ELASTIC-EP", "enable-elastic-training & expert-model-parallel-size>1",
          "Elastic training does not support expert parallelism.", f"{_HA}:72"),
    never("MS-ELASTIC-CP", "enable-elastic-training & context-parallel-size>1",
          "Elastic training does not support context parallelism.", f"{_HA}:72"),
    never("MS-FP8-LOCAL", "fp8-format & transformer-impl=local",
          "FP8 needs transformer-impl transformer_engine.", f"{_TE}:54", since="26.0"),
    needs("MS-FP8-HIF8", "fp8-format=hif8", "fp8-recipe=tensorwise",
          "HiF8 supports the tensorwise recipe only.", f"{_TE}:65", since="26.0"),
    needs("MS-FP8-REUSE", "fp8-reuse-quantized-weight", "fp8-format",
          "Reusing quantised weights needs FP8.", f"{_TE}:73", since="26.1"),
    needs("MS-FSDP2-CONFIG", "fsdp2-config-path", "use-torch-fsdp2",
          "An FSDP2 configuration needs FSDP2.", f"{FEATURES}/distributed/torch_fully_sharded_data_parallel.py:28"),
    never("MS-MTP-NORM", "mtp-num-layers>0 & !mtp-after-norm",
          "The multi-token prediction layer reads the last layer's output before the model's final norm; core 0.16 "
          "and Megatron-SWIFT give it the output of that norm.",
          "MindSpeed-LLM 26.1.0 core/models/gpt/gpt_model.py:271; Megatron-LM core_v0.16.1 "
          "megatron/core/models/gpt/gpt_model.py:593; measured: docs/parity.md",
          message="multi-token prediction: its layer reads hidden states before the final norm, in Megatron-LM 0.16 "
          "after it, so weights of one train as another model on the other",
          severity="warning"),
), backends=MINDSPEED, since=SINCE)
declare((
    needs("MS-MLA-RC-OVERLAP", "recompute-mla-up-proj & multi-latent-attention", "mla-up-proj-tp-overlap",
          "The up-projection is recomputed only where its communication is overlapped.",
          f"{_MLA}:61; {OLD_ARGUMENTS}:1104"),
    never("MS-MTP-CP-PACKED", "mtp-num-layers>0 & context-parallel-size>1 & reset-attention-mask",
          "Multi-token prediction over packed samples does not support context parallelism.",
          f"{LLM}/transformer/mtp.py:62"),
), backends=MINDSPEED, until="26.1.0")
declare((
    needs("MS-MLA-RC-OVERLAP-TP", "recompute-mla-up-proj & multi-latent-attention & tensor-model-parallel-size>1",
          "mla-up-proj-tp-overlap",
          "At tp above 1 the up-projection is recomputed only where its communication is overlapped.",
          "MindSpeed-LLM master features_manager/transformer/multi_latent_attention/mla_feature.py:89"),
    needs("MS-DSA-QUANT", "indexer-qk-quant-scheme?", "enable-dsa-indexer & kv-compress & !use-fused-lightning-indexer",
          "Quantised queries and keys of the indexer need it, compressed keys, and no fused indexer.",
          "MindSpeed-LLM master features_manager/transformer/multi_latent_attention/dsa_indexer_feature.py:133"),
    needs("MS-MINIMAX-TP", "spec~mindspeed_llm.tasks.models.spec.minimax_spec", "tensor-model-parallel-size=1",
          "The layers that normalise all heads together are not split over tensor-parallel ranks.",
          "MindSpeed-LLM master mindspeed_llm/tasks/models/spec/minimax_spec.py:21"),
), backends=MINDSPEED, since="master")
# fmt: on
