"""Tokenizer, special tokens and chat template."""

from launcher.job.option import option
from launcher.job.sources import ARGUMENTS, PRETRAINED_CONFIG
from launcher.records import dataclass

_HF_TOKENS = "Hugging Face SpecialTokensMixin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenizer:
    """Conversion of text to tokens."""

    path: str | None = option(None, "Tokenizer directory; none: the model's.", affects_training=True)
    type: str | None = option(
        None,
        "Tokenizer class; none: Hugging Face's, such that the end of a document is not masked as padding. "
        "PretrainedFromHF is MindSpeed-LLM's, which pads with the end of a document where there is no padding token.",
        source=f"{ARGUMENTS} --tokenizer-type",
        choices=(
            "HuggingFaceTokenizer",
            "NullTokenizer",
            "Llama2Tokenizer",
            "SentencePieceTokenizer",
            "TikTokenizer",
            "PretrainedFromHF",
        ),
        affects_training=True,
    )
    padded_vocab_size: int | None = option(
        None, "Vocabulary after padding; none: the next multiple.", unit="tokens", minimum=1, affects_training=True
    )
    make_vocab_size_divisible_by: int | None = option(
        None,
        "Pad the vocabulary to a multiple of this times tp.",
        source=f"{ARGUMENTS}",
        minimum=1,
        affects_training=True,
    )
    vocab_file: str | None = option(
        None,
        "File of a tokenizer's vocabulary.",
        source=f"{ARGUMENTS} --vocab-file",
        affects_training=True,
    )
    merge_file: str | None = option(
        None,
        "File of merges of a byte-pair tokenizer.",
        source=f"{ARGUMENTS} --merge-file",
        affects_training=True,
    )
    extra_ids: int | None = option(
        None,
        "Additional tokens of the vocabulary.",
        source=f"{ARGUMENTS} --vocab-extra-ids",
        minimum=0,
        affects_training=True,
    )
    tiktoken_pattern: str | None = option(
        None,
        "TikTokenizer: pattern that splits text first.",
        source=f"{ARGUMENTS} --tiktoken-pattern",
        affects_training=True,
    )
    tiktoken_special_tokens: tuple[str, ...] = option(
        (), "TikTokenizer: special tokens.", source=f"{ARGUMENTS} --tiktoken-special-tokens", affects_training=True
    )
    tiktoken_num_special_tokens: int | None = option(
        None,
        "TikTokenizer: number of special tokens.",
        source=f"{ARGUMENTS} --tiktoken-num-special-tokens",
        minimum=0,
        affects_training=True,
    )
    trust_remote_code: bool | None = option(None, "Run tokenizer code from the model directory.")
    has_code: bool | None = option(
        None,
        "The tokenizer's class is code in its directory; none: as tokenizer_config.json says (auto_map), if it is on "
        "this machine.",
        source=_HF_TOKENS,
    )
    pad_is_eos: bool | None = option(
        None,
        "The tokenizer pads with its end-of-text token, or has no padding token; none: as its files say, if they are "
        "on this machine.",
        source=_HF_TOKENS,
    )
    bos_token: str | None = option(
        None, "Text of the token that begins a text; none: the tokenizer's.", source=_HF_TOKENS
    )
    eos_token: str | None = option(
        None, "Text of the token that ends a text; none: the tokenizer's.", source=_HF_TOKENS
    )
    pad_token: str | None = option(
        None, "Text of the token that fills a sequence; none: the tokenizer's.", source=_HF_TOKENS
    )
    unk_token: str | None = option(None, "Text of the token of unknown text; none: the tokenizer's.", source=_HF_TOKENS)
    bos_token_id: int | None = option(
        None, "Token that begins a text; none: the tokenizer's.", source=PRETRAINED_CONFIG
    )
    eos_token_id: tuple[int, ...] = option(
        (), "Tokens that end a text; none: the tokenizer's.", source=PRETRAINED_CONFIG
    )
    pad_token_id: int | None = option(
        None, "Token that fills a sequence; none: the tokenizer's.", source=PRETRAINED_CONFIG
    )
