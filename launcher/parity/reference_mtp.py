"""DeepSeek-V3's multi-token prediction (arXiv:2412.19437, section 2.2), which transformers leaves out."""

import json
from pathlib import Path
from typing import Any

from launcher.families.registry import weights_of

_OWN = ("enorm", "hnorm", "eh_proj", "shared_head.norm")
"""Modules of such a layer besides those of a decoder layer."""


def knows(model_type: str | None) -> bool:
    """Return whether the checkpoints of a family hold such layers in the form that is computed here."""
    family = weights_of(model_type)
    names = {tensor.name for row in family.mtp for tensor in row.hf} if family is not None else set()
    return names == {f"{name}.weight" for name in _OWN}


def load_with_mtp(transformers: Any, torch: Any, folder: str, **arguments: Any) -> tuple[Any, Any]:
    """Return a model and its layer of multi-token prediction; None where config.json has none.

    The checkpoint holds that layer as one more decoder layer with `enorm`, `hnorm`, `eh_proj` and `shared_head.norm`,
    and copies of embedding and head, which are shared (section 2.2, "MTP Modules").

    Raises:
        ValueError: config.json has more than one of them.
    """
    written = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    extra = int(written.get("num_nextn_predict_layers") or 0)
    if extra > 1:
        raise ValueError(f"{extra} layers of multi-token prediction: the reference computes one")
    if not extra:
        return transformers.AutoModelForCausalLM.from_pretrained(folder, **arguments), None
    layers, hidden = int(written["num_hidden_layers"]), int(written["hidden_size"])
    config = transformers.AutoConfig.from_pretrained(folder, num_hidden_layers=layers + 1)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, config=config, **arguments)
    model.config.num_hidden_layers = layers  # the model's forward pass ends there
    layer, norm = model.model.layers[layers], type(model.model.norm)
    for name in ("enorm", "hnorm"):
        layer.register_module(name, norm(hidden, eps=config.rms_norm_eps))
    layer.register_module("eh_proj", torch.nn.Linear(2 * hidden, hidden, bias=False))
    layer.register_module("shared_head", torch.nn.Module())
    layer.shared_head.register_module("norm", norm(hidden, eps=config.rms_norm_eps))
    _fill(layer, folder, f"model.layers.{layers}.")
    return model, layer


def _fill(layer: Any, folder: str, prefix: str) -> None:
    from safetensors.torch import load_file

    tensors: dict[str, Any] = {}
    for file in sorted(Path(folder).glob("*.safetensors")):
        tensors.update(load_file(file))
    for name in _OWN:
        layer.get_submodule(name).weight.data.copy_(tensors[f"{prefix}{name}.weight"].float())


def mtp_loss(torch: Any, model: Any, layer: Any, tokens: Any, hidden: Any) -> Any:
    """Return the mean loss of the predictions two tokens ahead (eq. 21 to 25).

    Args:
        tokens: [sequences, length].
        hidden: output of the model's last layer and its final norm, [sequences, length, hidden size].
    """
    # The last position has no next token. Megatron computes it on token 0 (roll_tensor in
    # megatron/core/transformer/multi_token_prediction.py): it predicts nothing, but its layer's router counts it.
    following = torch.cat([tokens[:, 1:], torch.zeros_like(tokens[:, :1])], dim=1)
    embedded = layer.enorm(model.model.embed_tokens(following))
    merged = layer.eh_proj(torch.cat([embedded, layer.hnorm(hidden)], dim=-1))
    length = tokens.shape[1]
    mask = torch.full((length, length), torch.finfo(merged.dtype).min).triu(1)[None, None]
    positions = torch.arange(length)[None]
    output = layer(
        merged,
        attention_mask=mask,
        position_ids=positions,
        position_embeddings=model.model.rotary_emb(merged, positions),
    )
    output = output[0] if isinstance(output, tuple) else output
    logits = model.lm_head(layer.shared_head.norm(output))
    return torch.nn.functional.cross_entropy(logits[:, :-2].float().flatten(0, 1), tokens[:, 2:].flatten())
