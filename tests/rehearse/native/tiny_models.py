"""Tiny Hugging Face models, a tokenizer and data, made in the environment of the backend under test."""

import json
import random
import subprocess
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

RANDOM_WEIGHTS = Path(__file__).parents[3] / "launcher" / "rehearse" / "random_weights.py"

_BASE = {
    "vocab_size": 512,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "dtype": "bfloat16",
}
_EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 64, "norm_topk_prob": True}

_LATENT = {
    **{name: value for name, value in _BASE.items() if name != "head_dim"},
    **_EXPERTS,
    "model_type": "deepseek_v3",
    "num_key_value_heads": 8,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "q_lora_rank": 48,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
    "routed_scaling_factor": 2.5,
    "tie_word_embeddings": False,
}

_LINEAR = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}
_SHARED = {**_EXPERTS, "shared_expert_intermediate_size": 64, "num_experts": 8}


def _multimodal(model_type: str, text: Mapping[str, Any], *sections: int, **rope: Any) -> Mapping[str, Any]:
    """A language model inside a multimodal one, whose vision tower has no weights."""
    positions = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [*sections], **rope}
    inner = {**text, "model_type": f"{model_type}_text", "rope_parameters": positions, "tie_word_embeddings": False}
    vision = {"depth": 2, "hidden_size": 64, "num_heads": 4, "out_hidden_size": _BASE["hidden_size"]}
    return {"model_type": model_type, "text_config": inner, "vision_config": vision, "tie_word_embeddings": False}


CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "tiny_qwen3": {**_BASE, "model_type": "qwen3", "tie_word_embeddings": True},
    "tiny_qwen3_moe": {
        **_BASE,
        **_EXPERTS,
        "model_type": "qwen3_moe",
        "num_experts": 8,
        "tie_word_embeddings": False,
    },
    "tiny_deepseek_v3": _LATENT,
    "tiny_qwen3_next": {
        **_BASE,
        **_SHARED,
        **_LINEAR,
        "model_type": "qwen3_next",
        "intermediate_size": 128,
        "tie_word_embeddings": False,
    },
    "tiny_qwen3_5": _multimodal("qwen3_5", {**_BASE, **_LINEAR}, 2, 1, 1, partial_rotary_factor=0.25),
    "tiny_qwen3_5_moe": _multimodal(
        "qwen3_5_moe", {**_BASE, **_SHARED, **_LINEAR}, 2, 1, 1, partial_rotary_factor=0.25
    ),
    "tiny_qwen2_5_vl": _multimodal(
        "qwen2_5_vl", {name: value for name, value in _BASE.items() if name != "head_dim"}, 2, 3, 3
    ),
    "tiny_qwen3_vl": _multimodal("qwen3_vl", _BASE, 6, 5, 5),
    "tiny_qwen3_vl_moe": _multimodal("qwen3_vl_moe", {**_BASE, **_EXPERTS, "num_experts": 8}, 6, 5, 5),
    "tiny_deepseek_v3_mtp": {**_LATENT, "num_nextn_predict_layers": 1},
}

_TOKENIZER = """
    import sys
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    out, corpus = sys.argv[1], open(sys.argv[2], encoding="utf-8").read().splitlines()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=480, special_tokens=special, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(corpus, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    fast.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\\n{{ m.content }}<|im_end|>\\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\\n{% endif %}"
    )
    fast.save_pretrained(out)
"""


def conversations(count: int = 64) -> list[tuple[str, str]]:
    """Return questions and answers that a tiny model learns in a few steps; always the same."""
    draw = random.Random(0)
    colours = ["red", "green", "blue", "black", "white", "pink", "grey", "brown"]
    things = ["cat", "dog", "bird", "fish", "horse", "mouse", "cow", "sheep"]
    pairs = [(draw.choice(colours), draw.choice(things)) for _ in range(count)]
    return [
        (
            f"What colour is the {thing} number {number}?",
            f"The {thing} number {number} is {colour}, as everybody knows.",
        )
        for number, (colour, thing) in enumerate(pairs)
    ]


def write_data(folder: Path) -> dict[str, Path]:
    """Write the conversations as messages ("sft"), text ("pt") and preferences ("dpo"); return the JSONL files."""
    rows: dict[str, list[dict[str, Any]]] = {"sft": [], "pt": [], "dpo": []}
    for question, answer in conversations():
        chat = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        rows["sft"].append({"messages": chat})
        rows["pt"].append({"text": f"{question} {answer}"})
        rows["dpo"].append({"messages": chat, "rejected_response": "Nobody knows."})
    files = {}
    for kind, lines in rows.items():
        files[kind] = folder / f"{kind}.jsonl"
        files[kind].write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return files


def make_tokenizer(python: Path, folder: Path) -> Path:
    """Train a byte-level tokenizer of 480 tokens on the conversations with ``python``; return its directory."""
    corpus, out = folder / "corpus.txt", folder / "tokenizer"
    lines = [f"{question} {answer}" for question, answer in conversations()] + ["system user assistant"] * 20
    corpus.write_text("\n".join(lines), encoding="utf-8")
    script = textwrap.dedent(_TOKENIZER)
    subprocess.run([str(python), "-c", script, str(out), str(corpus)], check=True, capture_output=True, timeout=300)
    return out


def make_model(
    python: Path, name: str, tokenizer: Path, out: Path, *, options: Sequence[str] = (), **changes: Any
) -> Path:
    """Write the random-weight directory of one tiny model, its config changed, with ``python``; return it."""
    config = out.parent / f"{out.name}.config.json"
    config.write_text(json.dumps({**CONFIGS[name], **changes}), encoding="utf-8")
    places = ["--config", str(config), "--tokenizer", str(tokenizer), "--out", str(out)]
    command = [str(python), str(RANDOM_WEIGHTS), *places, *options]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert "Traceback" not in result.stderr
    assert result.returncode == 0, result.stderr
    return out
