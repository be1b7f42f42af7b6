"""Losses of transformers' models on one sample."""

from pathlib import Path
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


def answer_log_probabilities(folder: Path, tokens: Any, mask: Any) -> Any:
    """Return the log probability of the masked tokens of each row, by transformers in float32: tokens [rows, n + 1]."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        logits = model(torch.from_numpy(tokens[:, :-1])).logits.double()
    labels = torch.from_numpy(tokens[:, 1:])[..., None]
    return (logits.log_softmax(-1).gather(-1, labels)[..., 0] * torch.from_numpy(mask)).sum(-1)
