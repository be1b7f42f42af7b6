"""Losses of transformers' models on one sample."""

from typing import Any

LENGTH = 32
"""Tokens of a sample."""


def loss_of(model: Any, tokens: Any) -> float:
    """Return the mean loss of a model on one sample: tokens [length + 1]."""
    import torch

    model.eval()
    with torch.no_grad():
        logits = model(torch.from_numpy(tokens[None, :-1])).logits[0].double()
    return float(torch.nn.functional.cross_entropy(logits, torch.from_numpy(tokens[1:]).long()))
