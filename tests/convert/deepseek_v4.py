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
_KINDS = {"sliding_attention": 0, "compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
_OURS = ("layer_types", "mlp_layer_types", "compress_rates", "rope_parameters", "partial_rotary_factor")


def published(folder: Path) -> None:
    """Rewrite a model that transformers wrote, and add an MTP layer: one without compression, with a copy of the head."""
    from safetensors.torch import load_file, save_file

    file = folder / "model.safetensors"
    arrays = {_published(name): tensor for name, tensor in load_file(file).items()}
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
