"""Names of tokenizers in the files of launchers that build on Megatron-LM, as Megatron-LM's own."""

from collections.abc import Iterator, Mapping
from typing import Any

from launcher.importing.notes import Note
from launcher.records import dataclass

_KIND, _MODEL = "tokenizer_type", "tokenizer_model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenizers:
    """Tokenizer classes of a project.

    Attributes:
        names: its classes that load a tokenizer by transformers' AutoTokenizer.
        path: the argument that they load it from.
        own: Megatron-LM's class that does the same from `tokenizer_model`.
        source: where that is written.
    """

    names: tuple[str, ...]
    path: str
    own: str = "HuggingFaceTokenizer"
    source: str


PRIMUS = Tokenizers(
    names=(
        *("DeepSeekV2Tokenizer", "DeepSeekV3Tokenizer", "DeepSeekV4Tokenizer", "Llama2Tokenizer", "Llama3Tokenizer"),
        *("Llama4Tokenizer", "MixtralTokenizer", "Lfm2Tokenizer", "KimiK2Tokenizer"),
    ),
    path=_MODEL,
    source="Primus primus/backends/megatron/training/tokenizer/tokenizer.py:31",
)
FLAGSCALE = Tokenizers(
    names=("HFTokenizerFS", "HFTokenizersTokenizerFS", "Llama3TokenizerFS", "QwenTokenizerFS", "Qwen2TokenizerFS"),
    path="tokenizer_path",
    source="FlagScale v0.6.5 megatron/training/tokenizer/tokenizer.py:75",
)


def with_own_tokenizer(tree: Mapping[str, Any], known: Tokenizers, file: str, notes: list[Note]) -> dict[str, Any]:
    """Return settings with Megatron-LM's tokenizer class, in whichever section they name one; `notes` gets a remark."""
    found = dict(_renamed(tree, known, file, notes))
    return {
        key: with_own_tokenizer(value, known, file, notes) if isinstance(value, Mapping) else value
        for key, value in found.items()
    }


def _renamed(tree: Mapping[str, Any], known: Tokenizers, file: str, notes: list[Note]) -> Iterator[tuple[str, Any]]:
    kind = tree.get(_KIND)
    if kind not in known.names:
        yield from tree.items()
        return
    notes.append(
        Note(message=f"{_KIND} {kind} is read as {known.own}, which loads the same ({known.source})", where=file)
    )
    moves = known.path != _MODEL and tree.get(_MODEL) is None
    for key, value in tree.items():
        if key == _MODEL and moves:
            continue
        yield (_MODEL if moves and key == known.path else key), (known.own if key == _KIND else value)
