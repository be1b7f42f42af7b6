"""Documents packed into one sample: attention masks and position ids."""

from __future__ import annotations

from typing import Any

from launcher.rehearse.core.data.tokenizer import TextTokenizer
from launcher.rehearse.core.errors import RehearsalError
from launcher.rehearse.core.options import DataOptions
from launcher.rehearse.core.settings import Settings

_NEEDS_END = ("eod_mask_loss", "reset_attention_mask", "reset_position_ids")


def end_of_document(settings: Settings, options: DataOptions, tokenizer: TextTokenizer) -> int | None:
    """Return the end-of-document token; None where it is unknown for tokenised data and no argument needs it.

    RehearsalError where an argument needs it.
    """
    if options.kind != "megatron" or options.tokenizer is not None:
        return tokenizer.eod
    if settings.value("tokenizer_type") == "NullTokenizer" and settings.value("vocab_size"):
        return int(settings.value("vocab_size"))
    needing = [settings.arguments.flag(dest) for dest in _NEEDS_END if settings.value(dest)]
    if needing:
        raise RehearsalError(
            f"{' and '.join(needing)} with tokenised data: the end-of-document token is unknown; works: the option "
            "data.tokenizer, or --tokenizer-type NullTokenizer with --vocab-size"
        )
    return None


def document_numbers(tokens: Any, eod: int) -> Any:
    """Number the documents within each sample; the end token belongs to the document that it ends. [b, s] to [b, s]."""
    ends = (tokens == eod).long()
    return ends.cumsum(1) - ends


def hidden_from(tokens: Any, eod: int) -> Any:
    """Return the attention mask [b, 1, s, s] that is True where query and key belong to different documents."""
    documents = document_numbers(tokens, eod)
    return documents[:, None, :, None] != documents[:, None, None, :]


def positions_within(tokens: Any, eod: int) -> Any:
    """Count positions from the beginning of each document. [b, s] to [b, s]."""
    import torch

    places = torch.arange(tokens.size(1), device=tokens.device).expand_as(tokens)
    documents = document_numbers(tokens, eod)
    begins = torch.ones_like(tokens, dtype=torch.bool)
    begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
    return places - torch.where(begins, places, 0).cummax(1).values
