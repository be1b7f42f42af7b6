"""Programs of Megatron-LM's checkouts that do not train what this launcher describes (core 0.12.1 to 0.19.0)."""

from collections.abc import Mapping

OTHER_MODELS = (
    "pretrain_bert.py",
    "pretrain_t5.py",
    "pretrain_ict.py",
    "pretrain_retro.py",
    "pretrain_vlm.py",
    "pretrain_vit.py",
    "pretrain_vision_classify.py",
    "pretrain_vision_dino.py",
    "pretrain_vision_inpaint.py",
)

_MODEL = "it trains another kind of model than this launcher describes"
_SERVES = "it generates text; it does not train"
_EVALUATES = "it evaluates a model; it does not train"
_CONVERTS = "it converts checkpoints (launch convert)"
_DATA = "it prepares data"
_MODELOPT = "it compresses or evaluates a trained model with ModelOpt"

# Path, as far as a command line gives it, to why it is not imported.
OTHER_PROGRAMS: Mapping[str, str] = {
    **dict.fromkeys((*OTHER_MODELS, "multimodal/train.py", "mimo/train.py", "retro/sft/sft_retro.py"), _MODEL),
    "train_rl.py": "it trains on rollouts that it generates itself, which no job for Megatron-LM describes",
    "tasks/main.py": "it fine-tunes BERT for a downstream task, or evaluates a model",
    "msdp/main.py": "it prompts or evaluates a model of dialogues; it does not train",
    **dict.fromkeys(
        (
            "text_generation_cli.py",
            "generate_samples_gpt.py",
            "run_text_generation_server.py",
            "run_dynamic_text_generation_server.py",
            "run_mamba_text_generation_server.py",
            "run_mamba_text_generation_server_completions.py",
            "run_hybrid_text_generation_server.py",
            "run_hybrid_text_generation_server_completions.py",
            "run_vlm_text_generation.py",
            "multimodal/run_text_generation.py",
            "gpt_static_inference.py",
            "gpt_dynamic_inference.py",
            "simple_t5_batch_inference.py",
            "retro_text_generation.py",
        ),
        _SERVES,
    ),
    "retro/text_generation/evaluate.py": _EVALUATES,
    **dict.fromkeys(("checkpoint/convert.py", "checkpoint/hybrid_conversion.py"), _CONVERTS),
    **dict.fromkeys(
        (
            "preprocess_data.py",
            "preprocess_mmdata.py",
            "preprocess_data_nmt.py",
            "merge_datasets.py",
            "build_sequences_per_dataset.py",
            "prepare_cache.py",
        ),
        _DATA,
    ),
    **dict.fromkeys(
        (
            f"modelopt/{name}.py"
            for name in ("quantize", "export", "convert_model", "prune", "validate", "mmlu", "generate")
        ),
        _MODELOPT,
    ),
}
