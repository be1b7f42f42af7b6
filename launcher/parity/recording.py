"""What a process recorded of its first pass: tensors with a row for each token, sequence after sequence.

Implementations keep tokens in different orders: transformers [sequences, tokens], Megatron-core [tokens, sequences]
after the embedding, Megatron-SWIFT all sequences joined without padding.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launcher.parity.stages import LOSS, Stage
from launcher.rehearse.cpu.tracer import AGAIN

Traced = Mapping[str, Mapping[str, Any]]
"""Module name to `inputs`, `outputs` and `gradient`, as launcher/rehearse/cpu/tracer.py records them."""

# Modules of Megatron-core with the sequences first: the embedding, and the model itself, which returns losses.
_SEQUENCES_FIRST = ("embedding.word_embeddings", "")
_HEAD, _FINAL_NORM = "output_layer", "decoder.final_layernorm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Tokens that two recordings share: rows `first` and `second` on, `length` of them."""

    first: int
    second: int
    length: int


class Recording:
    """One recording.

    Raises:
        LookupError: it has no embedding, so it is not of a whole model.
    """

    def __init__(self, traced: Traced) -> None:
        self.traced = traced
        self.is_transformers = "lm_head" in traced
        embedding = self._module("embedding.word_embeddings") or self._module("model.embed_tokens")
        if embedding is None:
            raise LookupError("no embedding was recorded")
        self.tokens = embedding["inputs"][0]  # [sequences, tokens]

    def value(self, stage: Stage, *, gradient: bool, heads: tuple[int, int]) -> Any:
        """Return the tensor of a stage, or its gradient, [tokens, …]; None where it was not recorded.

        A module that returns its input (Transformer Engine computes that norm inside the next layer) has no stage.

        Args:
            heads: attention heads and key-value heads of the model.
        """
        if stage.name == LOSS and self.is_transformers:
            return None if gradient else self._losses()
        part = stage.transformers if self.is_transformers else stage.megatron
        found = None if part is None else self._continuing(part.module)
        if part is None or found is None or _is_identity(found):
            return None
        if gradient:
            tensor = found["gradient"] if part.kind == "outputs" and part.index == 0 else None
        else:
            tensor = found[part.kind][part.index] if len(found[part.kind]) > part.index else None
        if tensor is None or (stage.name == LOSS and tensor.shape != self.tokens.shape):
            return None
        if stage.share and not self.is_transformers:
            tensor = _shared(tensor, stage.share, *heads)
        return self._rows(tensor, sequences_first=self.is_transformers or part.module in _SEQUENCES_FIRST)

    def _rows(self, tensor: Any, *, sequences_first: bool) -> Any:
        """Return a tensor with its rows sequence after sequence; None where it has not one for each token."""
        count, length = self.tokens.shape
        if tensor.numel() % (count * length):
            return None
        if sequences_first:
            return tensor.reshape(count * length, -1)
        return tensor.reshape(length, count, -1).transpose(0, 1).reshape(count * length, -1)

    def _losses(self) -> Any:
        """Return the loss of each token's successor, [tokens, 1], from the logits; that of a sequence's last is 0."""
        logits = self.traced["lm_head"]["outputs"][0].float()
        found = logits.new_zeros(self.tokens.shape)
        chosen = logits[:, :-1].log_softmax(-1).gather(-1, self.tokens[:, 1:, None])
        found[:, :-1] = -chosen.squeeze(-1)
        return found.reshape(-1, 1)

    def _continuing(self, name: str) -> Mapping[str, Any] | None:
        """Return the pass of a module that continues the model's: the logits of the final norm's output."""
        found, again = self._module(name), self._module(f"{name}{AGAIN}")
        norm = self._module(_FINAL_NORM) if name == _HEAD else None
        if found is None or again is None or norm is None or _same(found["inputs"][0], norm["outputs"][0]):
            return found
        return again

    def _module(self, name: str) -> Mapping[str, Any] | None:
        """Return a module by its name below the model, whatever wraps the model."""
        if not name:
            return self.traced.get("")
        return next((found for key, found in self.traced.items() if f".{key}".endswith(f".{name}")), None)


def shared_tokens(first: Recording, second: Recording) -> list[Span]:
    """Return where the sequences of one recording stand in the other; [] where one of them does not.

    Padding at the ends is left out.
    """
    spans = _spans(first, second)
    if spans:
        return spans
    return [Span(first=each.second, second=each.first, length=each.length) for each in _spans(second, first)]


def _spans(first: Recording, second: Recording) -> list[Span]:
    rows, other = first.tokens.tolist(), second.tokens.reshape(-1).tolist()
    length = first.tokens.shape[1]
    padding = {row[-1] for row in rows if len(_without_padding(row)) < len(row)}
    found = []
    for number, row in enumerate(rows):
        place = _place(_without_padding(row), other, padding)
        if place is None:
            return []
        found.append(Span(first=number * length, second=place[0], length=place[1]))
    return found


def _place(row: Sequence[int], other: Sequence[int], padding: Collection[int]) -> tuple[int, int] | None:
    """Return where the longest beginning of a row stands, and its length; None if more than padding is left."""
    start, length = 0, 0
    for place, token in enumerate(other):
        if token == row[0]:
            common = _common(row, other[place : place + len(row)])
            if common > length:
                start, length = place, common
    return (start, length) if length and set(row[length:]) <= set(padding) else None


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    pairs = zip(one, other, strict=False)
    return next((number for number, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _without_padding(row: Sequence[int]) -> Sequence[int]:
    """Return a sequence without a token that its end repeats."""
    rest = len(row)
    while rest and row[rest - 1] == row[-1]:
        rest -= 1
    return row[:rest] if 0 < rest < len(row) - 1 else row


def _is_identity(found: Mapping[str, Any]) -> bool:
    first, last = found["inputs"][:1], found["outputs"][:1]
    return bool(first and last and _same(first[0], last[0]))


def _same(one: Any, other: Any) -> bool:
    return one.shape == other.shape and bool((one == other).all())


def _shared(tensor: Any, share: str, heads: int, groups: int) -> Any:
    """Return query, key or value of the output of linear_qkv, whose heads stand group by group.

    Source: megatron/core/transformer/attention.py, SelfAttention.get_query_key_value_tensors.
    """
    each = heads // groups
    parts = tensor.reshape(-1, groups, each + 2, tensor.shape[-1] // (groups * (each + 2)))
    first, last = {"query": (0, each), "key": (each, each + 1), "value": (each + 1, each + 2)}[share]
    return parts[:, :, first:last]
