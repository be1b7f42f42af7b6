"""Tokenizers that pad with the end of a document, which pre-training then masks, and templates that need a class."""

from collections.abc import Iterator

from backends.mindspeed.rules.tables import MINDSPEED, SINCE
from launcher.rules.registry import Rule, RuleContext, Violation, lower, rule
from launcher.rules.table import declare, term

_CLASS = "tokenizer-type"
_FLAGS = (_CLASS, "eod-mask-loss", "reset-position-ids", "reset-attention-mask")
_READS = f"{' '.join(_FLAGS)} @pads-like-hugging-face job.tokenizer.pad_is_eos job.tokenizer.has_code "
# Files that --handler-name tokenizes at start (dataset_preprocess.py @26.1.0).
_RAW = (".json", ".jsonl", ".parquet", ".csv", ".txt", ".arrow")
_SOURCE = (
    "MindSpeed-LLM 26.1.0 mindspeed_llm/training/tokenizer/tokenizer.py:143, 185; Megatron-LM core_v0.12.1 "
    "megatron/core/datasets/gpt_dataset.py:207, 210 (core_v0.8.0: 208, 211); copied for each sample since core_v0.15.0"
)


@term("mindspeed", "pads-like-hugging-face", _CLASS, "stage", "is-instruction-dataset", "is-pairwise-dataset",
      "handler-name", "append-eod", "job.data.paths", "job.imported.backend")  # fmt: skip
def pads_like_hugging_face(context: RuleContext) -> bool:
    """Return whether GPTDataset masks the padding token of a Hugging Face tokenizer in documents with an end.

    Files that are tokenized at start get no ends without --append-eod; token files may have them.
    """
    tuned = any(context.flag(name) for name in ("stage", "is-instruction-dataset", "is-pairwise-dataset"))
    raw = not context.existing or all(str(path).endswith(_RAW) for path in context.job.data.paths)
    endless = raw and context.flag("handler-name") and not context.flag("append-eod")
    return context.flag(_CLASS) == "PretrainedFromHF" and not tuned and not endless


def _works(context: RuleContext) -> tuple[str, ...]:
    masked = "data.eod_mask_loss=true"
    if context.version == "2.1.0" or context.job.tokenizer.has_code:
        return (masked,)
    return ("tokenizer.type=HuggingFaceTokenizer", masked)


def _keeps_mask(context: RuleContext) -> bool:
    """Return whether one loss mask is used for all samples (gpt_dataset.py:95)."""
    return not any(context.flag(name) for name in _FLAGS[1:])


@rule(
    "MS-PAD-EOS",
    source=f"{_SOURCE}; measured: unmasked 0.86 of the tokens at iteration 1, 0.02 at 14, then NaN; 93 of upstream's "
    "140 pre-training scripts depend on their tokenizer (python -m tools.bench.pad_tokens)",
    reads=_READS,
    backends=MINDSPEED,
    stricter=True,
    reason="it trains until no token is left",
)
def padding_is_not_the_end_of_a_document(context: RuleContext) -> Iterator[Violation]:
    """A tokenizer that pads with the end of a document masks the loss there, in one mask for all samples.

    A tokenizer without a padding token is given that one. Positions that were masked once stay masked, until the loss
    is not a number. Megatron-LM's class of the same tokenizer has no padding token.
    """
    if pads_like_hugging_face(context) and context.job.tokenizer.pad_is_eos and _keeps_mask(context):
        yield Violation(
            message="the tokenizer pads with the end of a document, which GPTDataset masks for all later samples too: "
            "the loss counts ever fewer tokens and ends as NaN",
            fields=("tokenizer.type",),
            flags=_FLAGS,
            works=_works(context),
        )


lower("MS-PAD-EOS", "mindspeed", "until no token is left", when=lambda context: context.existing)


@rule("MS-PAD-EOS-MASKED", source=_SOURCE, reads=_READS, severity="warning", backends=MINDSPEED)
def ends_of_documents_are_read(context: RuleContext) -> Iterator[Violation]:
    """A tokenizer that pads with the end of a document makes it token 0 in each sample, without a loss.

    Whether it does is not known where its files are not on this machine.
    """
    known = context.job.tokenizer.pad_is_eos
    if not pads_like_hugging_face(context) or known is False or (known and _keeps_mask(context)):
        return
    message = "the tokenizer pads with the end of a document, which becomes token 0 and has no loss"
    if known is None:
        message = (
            "the tokenizer's files are not on this machine: if it pads with the end of a document, or has no padding "
            "token, the loss masks "
        ) + ("ever more tokens and ends as NaN" if _keeps_mask(context) else "the ends of documents")
        message += "; tokenizer.pad_is_eos=false states that it does not"
    yield Violation(message=message, fields=("tokenizer.type",), flags=_FLAGS, works=_works(context)[:-1])


declare(
    (
        Rule(
            id="MS-TOKENIZER-TEMPLATE",
            doc="Megatron-LM's class of Hugging Face tokenizers has no padding to adapt to a chat template.",
            source="MindSpeed-LLM 26.1.0 mindspeed_llm/training/tokenizer/tokenizer.py:82",
            when="prompt-type? & tokenizer-type=HuggingFaceTokenizer",
            stricter=True,
            reason="its validators accept it, building the tokenizer ends with an AttributeError",
            since="26.1",
        ),
    ),
    backends=MINDSPEED,
    since=SINCE,
)
