"""The logits of a model with a PEFT adapter, as transformers and PEFT compute them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any


def logits(model: Path, adapter: Path, tokens: Any) -> Any:
    """Return the logits [batch, sequence, vocabulary] in float32 as a numpy array."""
    import torch
    import transformers

    kinds: dict[str, Any] = {"dtype": torch.float32, "attn_implementation": "eager"}
    base = transformers.AutoModelForCausalLM.from_pretrained(model, **kinds)
    adapted = import_module("peft").PeftModel.from_pretrained(base, adapter).eval()
    with torch.no_grad():
        return adapted(torch.from_numpy(tokens)).logits.numpy()
