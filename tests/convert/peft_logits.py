"""The logits of a model with a PEFT adapter, as transformers and PEFT compute them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from tests.convert import zoo


def logits(model: Path, adapter: Path, tokens: Any) -> Any:
    """Return the logits [batch, sequence, vocabulary] in float32 as a numpy array."""
    import torch

    adapted = import_module("peft").PeftModel.from_pretrained(zoo.loaded(model), adapter).eval()
    with torch.no_grad():
        return adapted(torch.from_numpy(tokens)).logits.numpy()
