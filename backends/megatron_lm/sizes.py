"""Sizes that Megatron-LM derives from others: the default FFN size, the vocabulary of a tokenizer without a file."""

from launcher.job.model import Model
from launcher.job.width import megatron_width
from launcher.mapping.backend import VocabularySize

# A NullTokenizer has a token for the end of a document beside those of --vocab-size.
# Source: megatron/training/tokenizer/tokenizer.py:835 @core_v0.16.1, :813 @core_v0.12.1.
# GPT2BPETokenizer reads vocab.json and merges.txt, which GPT-2 published (https://huggingface.co/openai-community/gpt2,
# vocab_size of its config.json).
VOCABULARY_SIZE = VocabularySize(
    size="vocab-size",
    tokenizer="tokenizer-type",
    added={"NullTokenizer": 1},
    usual={"GPT2BPETokenizer": 50257},
)


def default_ffn_size(model: Model, version: str) -> int | None:
    """Return the FFN size of dense layers without --ffn-hidden-size; None where the hidden size is unknown."""
    if model.hidden_size is None:
        return None
    return megatron_width(model.hidden_size, gated=model.hidden_act == "silu")
