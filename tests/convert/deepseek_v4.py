"""DeepSeek-V4 as it is published: names of tensors and keys, an MTP layer, weights in FP8 and MXFP4."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

# What transformers 5.24 writes, and what is published (and read by transformers, too).
_NAMES = {
    r"^model\.": "",
    r"^embed_tokens\.": "embed.",
    r"^hc_head\.hc_": "hc_head_",
    r"\.attn\.norm\.": ".attn.kv_norm.",
}
# What is published in float32 beside weights in bf16.
_FLOAT32 = re.compile(r"(^|\.)(hc_\w+|ape|attn_sink|gate\.bias)$")
_KINDS = {"sliding_attention": 0, "compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
_OURS = ("layer_types", "mlp_layer_types", "compress_rates", "rope_parameters", "partial_rotary_factor")


def published(folder: Path) -> None:
    """Rewrite a model that transformers wrote, and add an MTP layer."""
    from safetensors.torch import load_file, save_file

    file = folder / "model.safetensors"
    arrays = {_published(name): tensor for name, tensor in load_file(file).items()}
    arrays = {name: tensor.float() if _FLOAT32.search(name) else tensor for name, tensor in arrays.items()}
    config = json.loads((folder / "config.json").read_text())
    ratios = [_KINDS[kind] for kind in config["layer_types"]]
    own = {
        "compress_ratios": [*ratios, 0],
        "num_hash_layers": config["mlp_layer_types"].count("hash_moe"),
        "num_nextn_predict_layers": 1,
    }
    kept = {key: value for key, value in config.items() if key not in _OURS}
    (folder / "config.json").write_text(json.dumps({**kept, **own}))
    save_file({**arrays, **_mtp(arrays, len(ratios))}, file, {"format": "pt"})


def _published(name: str) -> str:
    for pattern, replacement in _NAMES.items():
        name = re.sub(pattern, replacement, name)
    return name


def _mtp(arrays: dict[str, Any], layers: int) -> dict[str, Any]:
    import torch

    found = {}
    for name, tensor in arrays.items():
        if name.startswith(f"layers.{layers - 1}.") and ".compressor." not in name and ".indexer." not in name:
            found[name.replace(f"layers.{layers - 1}.", "mtp.0.")] = tensor + 1
        elif name.startswith("hc_head_"):
            found[f"mtp.0.{name}"] = tensor + 1
    hidden = arrays["norm.weight"].shape[0]
    for name, shape in {
        "enorm": (hidden,),
        "hnorm": (hidden,),
        "norm": (hidden,),
        "e_proj": (hidden, hidden),
        "h_proj": (hidden, hidden),
    }.items():
        found[f"mtp.0.{name}.weight"] = torch.randn(shape).to(arrays["norm.weight"].dtype)
    copies = {"emb.tok_emb.weight": "embed.weight", "head.weight": "head.weight"}
    return {**found, **{f"mtp.0.{name}": arrays[of].clone() for name, of in copies.items()}}


# Matrices in FP8; those of routed experts are in MXFP4 (config.json of DeepSeek-V4-Flash: expert_dtype).
_FP8 = re.compile(r"(\.attn\.(w\w+|indexer\.wq_b)|\.shared_experts\.w\d|\.[eh]_proj)\.weight$")
_FP4 = re.compile(r"\.ffn\.experts\.\d+\.w\d\.weight$")
_CONFIG = {
    "activation_scheme": "dynamic",
    "fmt": "e4m3",
    "quant_method": "fp8",
    "scale_fmt": "ue8m0",
    "weight_block_size": [128, 128],
}


def released(folder: Path, out: Path) -> tuple[Path, dict[str, bytes]]:
    """Write a model as it is released, with random words, and return the bytes in bf16 that transformers reads."""
    import torch
    from safetensors.torch import load_file, save_file
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize

    torch.manual_seed(0)
    found: dict[str, Any] = {}
    expected: dict[str, bytes] = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        if _FP8.search(name):
            words = torch.randint(0, 127, tensor.shape) + 128 * torch.randint(0, 2, tensor.shape)
            stored = words.to(torch.uint8).view(torch.float8_e4m3fn)
            grid = tuple(-(-size // 128) for size in tensor.shape)
        elif _FP4.search(name):
            stored = torch.randint(-128, 128, (tensor.shape[0], tensor.shape[1] // 2), dtype=torch.int8)
            grid = (tensor.shape[0], tensor.shape[1] // 32)
        else:
            kept = _FLOAT32.search(name) or not tensor.is_floating_point()
            found[name] = tensor if kept else tensor.to(torch.bfloat16)
            expected[name] = found[name].contiguous().view(torch.uint8).numpy().tobytes()
            continue
        scales = torch.randint(90, 140, grid, dtype=torch.uint8).view(torch.float8_e8m0fnu)
        found[name], found[f"{name.removesuffix('weight')}scale"] = stored, scales
        read = Fp8Dequantize(None)._dequantize_one(stored, scales, torch.bfloat16)
        expected[name] = read.contiguous().view(torch.uint8).numpy().tobytes()
    out.mkdir()
    save_file(found, out / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    own = {"dtype": "bfloat16", "expert_dtype": "fp4", "quantization_config": _CONFIG}
    (out / "config.json").write_text(json.dumps({**config, **own}))
    return out, expected
