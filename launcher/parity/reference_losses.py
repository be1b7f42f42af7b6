"""What balances the load of experts, from its papers: two losses of the router, and the capacity of an expert."""

import math
from typing import Any


def load_balancing(logits: Any, *, chosen: int, scoring: str, sequences: int = 1) -> Any:
    """Return the load-balancing loss of one router, the mean of the losses of its sequences.

    Per sequence E * sum_e f_e P_e, with the share f_e of the top-k choices and the mean score P_e of each expert:
    Switch Transformers (arXiv:2101.03961, eq. 4 to 6) over a micro-batch, DeepSeek-V3 (arXiv:2412.19437, eq. 17 to 20)
    over a sequence. An expert's bias and groups choose experts, but do not enter f or P (eq. 18).

    Args:
        logits: [tokens, experts], one sequence after another.
        chosen: experts of a token (k).
        scoring: `softmax`, or `sigmoid`, whose scores are divided by their sum (eq. 19).
        sequences: the tokens are those of so many sequences of one length; 1: all of them count as one.
    """
    import torch

    scores = torch.softmax(logits.float(), dim=-1) if scoring == "softmax" else torch.sigmoid(logits.float())
    scores = scores / scores.sum(-1, keepdim=True)
    tokens, experts = scores.shape
    picks = torch.nn.functional.one_hot(torch.topk(scores, chosen, dim=-1).indices, experts).sum(1).float()
    share = picks.view(sequences, tokens // sequences, experts).mean(1) / chosen
    return (experts * share * scores.view(sequences, tokens // sequences, experts).mean(1)).sum(-1).mean()


def router_z(logits: Any) -> Any:
    """Return the router z-loss of ST-MoE (arXiv:2202.08906, eq. 5): the mean of the squared log of the sum of exp.

    Args:
        logits: [tokens, experts].
    """
    import torch

    return torch.logsumexp(logits.float(), dim=-1).square().mean()


def within_capacity(weights: Any, experts: Any, *, count: int, factor: float, policy: str) -> Any:
    """Return which choices an expert keeps; it takes so many tokens: ceil(factor * choices / experts).

    GShard (arXiv:2006.16668, algorithm 1) and Switch Transformers (arXiv:2101.03961, eq. 3). A choice that is dropped
    has weight 0: the token passes that expert by. Padding an expert's input to the capacity computes the same.

    Args:
        weights: [tokens, k], of the choices.
        experts: [tokens, k], their numbers.
        count: number of experts.
        factor: 1.0 gives room for an even load.
        policy: `probs` keeps the largest weights of an expert, `position` the first tokens.

    Returns:
        Booleans, [tokens, k].
    """
    import torch

    capacity = math.ceil(experts.numel() / count * factor)
    kept = torch.zeros_like(experts, dtype=torch.bool)
    for expert in range(count):
        token, slot = torch.where(experts == expert)
        if policy == "probs":
            order = torch.argsort(weights[token, slot].detach(), descending=True, stable=True)
            token, slot = token[order], slot[order]
        kept[token[:capacity], slot[:capacity]] = True
    return kept
