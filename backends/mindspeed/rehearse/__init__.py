"""Planner data for rehearsing MindSpeed-LLM's entry points on CPU; without heavy imports."""

from launcher.rehearse.native import Checkout, NativeOnCpu, Requirement

NATIVE_CPU = NativeOnCpu(
    address="backends.mindspeed.rehearse:NATIVE_CPU",
    install="backends.mindspeed.rehearse.cpu:install",
    # pretrain_gpt.py, posttrain_gpt.py, and preprocess_data.py, which a rank starts for raw text data.
    script="*/p[ro]*_*.py",
    title="MindSpeed-LLM's own training script (torch {torch}, transformers {transformers})",
    stand_ins=("torch_npu and CANN's packages", "their fused operators", "CUDA device names", "HCCL (gloo instead)"),
    requires=(
        Requirement(distribution="torch", version="2.13.0"),
        Requirement(distribution="transformers", version="5.2.0"),
        Requirement(distribution="numpy", version="1.26.0"),
        Requirement(distribution="scipy"),
        Requirement(distribution="einops"),
        Requirement(distribution="peft"),
        Requirement(distribution="datasets"),
        Requirement(distribution="sentencepiece"),
        Requirement(distribution="psutil"),
        Requirement(distribution="regex"),
        Requirement(distribution="six"),
    ),
    tested_with=(
        Requirement(distribution="torch", version="2.13.0"),
        Requirement(distribution="transformers", version="5.2.0"),
        Requirement(distribution="numpy", version="1.26.0"),
    ),
    checkouts=(
        Checkout(
            variable="MINDSPEED_LLM_PATH",
            holds="pretrain_gpt.py",
            what="MindSpeed-LLM (tested: 26.1.0, and master of August 2026)",
        ),
        Checkout(
            variable="MINDSPEED_PATH",
            holds="mindspeed/megatron_adaptor.py",
            what="MindSpeed for core_r0.12.1 (tested: 26.1.0_core_r0.12.1, and master of July 2026)",
        ),
        Checkout(
            variable="MEGATRON_LM_PATH",
            holds="megatron/training/training.py",
            what="NVIDIA's Megatron-LM at the tag core_v0.12.1",
        ),
    ),
    # Upstream's scripts set the second; the first keeps transformers from looking for TensorFlow.
    env=(("USE_TF", "FALSE"), ("CUDA_DEVICE_MAX_CONNECTIONS", "1")),
    # mindspeed_llm/tasks/posttrain/sft/sft_trainer.py:219 @26.1.0; in pre-training all micro-batches have as many.
    loss_mean="micro_batches",
    note="Fused operators are computed in plain torch: losses are comparable, times and memory are not.",
)
