"""Parameters of a family: Megatron-core tensors, and the Hugging Face tensors that they are made of."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Final, Literal

from launcher.job.model import Model
from launcher.records import dataclass, record

# How a Megatron-core tensor is composed of Hugging Face tensors, and how tensor parallelism splits it:
#   replicated  the tensor itself, whole on every rank
#   column      the tensor itself, split along its first dimension
#   row         the tensor itself, split along its second dimension
#   vocabulary  column, with padding at the end
#   qkv         query, key and value heads, sorted by query group (q … q k v, q … q k v); column. Three tensors, or one
#               that has all queries, then all keys, then all values
#   gate_up     the gate's rows, then the up projection's; each of the two halves is split. Two tensors, or one
#   key_heads   linear attention: the rows of each tensor that belong to the first key head, then the second's …;
#               column. A tensor is sorted so itself, or has all queries, then all keys, then all values (`linear_conv`)
Kind = Literal["replicated", "column", "row", "vocabulary", "qkv", "gate_up", "key_heads"]
# Name of a size (see `sizes`), or a literal int.
Dim = str | int
# Prefix of a language model's tensors in the tables and in its own files.
_LANGUAGE: Final = "model."


@dataclass(frozen=True, slots=True, kw_only=True)
class HfTensor:
    """A Hugging Face tensor: its name inside its layer (`{expert}` for the expert's number), and its shape."""

    name: str
    shape: tuple[Dim, ...]


def hf(name: str, *shape: Dim) -> HfTensor:
    """Return an `HfTensor`; shorthand for tables."""
    return HfTensor(name=name, shape=shape)


@record()
class Row:
    """One Megatron-core tensor and the Hugging Face tensors that it consists of.

    Attributes:
        core: name inside its layer, for Transformer Engine's layers; `{expert}` is the expert's number.
        hf: its Hugging Face tensors.
        kind: how they are combined and split.
        local: the name for megatron-core's local layers; None if the same.
        local_kind: the kind for local layers; None if the same.
        needs: field of section `model` that must be set (true) for the tensor to exist.
        unless: field that must not be set.
        mixer: kind of attention that its layer must have (`launcher.families.attention.mixer`); None: any.
        hashed: whether experts of its layer must be chosen by the token (`num_hash_layers`), or must not; None: any.
        part: (first row, number of rows) of its Hugging Face tensor that it consists of; None: all.
        exact: keeps its number format when the model is cast (a float32 router bias determines the expert choice).
        integer: number formats of whole numbers in Hugging Face files and in Megatron-core; None: a weight.
    """

    core: str
    hf: tuple[HfTensor, ...]
    kind: Kind = "replicated"
    local: str | None = None
    local_kind: Kind | None = None
    needs: str | None = None
    unless: str | None = None
    mixer: str | None = None
    hashed: bool | None = None
    part: tuple[int, int] | None = None
    exact: bool = False
    integer: tuple[str, str] | None = None

    def exists(self, model: Model) -> bool:
        """Return whether this architecture has the tensor."""
        needed = self.needs is None or bool(getattr(model, self.needs))
        return needed and (self.unless is None or not getattr(model, self.unless))

    @property
    def of_expert(self) -> bool:
        """Whether there is one such tensor for each expert."""
        return "{expert}" in self.core


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelling:
    """Another way to store tensors of one layer.

    Attributes:
        stored: name inside the layer.
        parts: canonical names, one after the other along their first dimension; with `{expert}`, experts are stacked
            first.
        interleaved: rows of the parts alternate instead.
        transposed: the last two dimensions are swapped.
        declared_transposed: transformers' class declares it (`is_transposed`): PEFT's factors are those of the parts
            then, else those of the swapped matrices.
        written: it is how Hugging Face stores the layer, and what is written; else it is for reading only.
        in_mtp: multi-token-prediction layers are written so, too.
        mxfp4: it is also published in MXFP4, not transposed then: `stored` with `_blocks` and `_scales`; read only.
    """

    stored: str
    parts: tuple[str, ...]
    interleaved: bool = False
    transposed: bool = False
    declared_transposed: bool = False
    written: bool = False
    in_mtp: bool = True
    mxfp4: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Enclosing:
    """The multimodal model that a language model is part of.

    Attributes:
        language: prefix that the language model's tensors have in its files instead of `model.`.
        core: prefix that they have in Megatron-core.
        others: prefix of each other module in its files, and in Megatron-core; such tensors are copied unchanged.
        aliases: other prefixes in files, for reading only, and what they are in the usual ones.
        module: prefix of its modules in transformers' class, by which PEFT names them; None: that in files.
    """

    language: str
    core: str
    others: Mapping[str, str]
    aliases: Mapping[str, str] = field(default_factory=dict)
    module: str | None = None

    def other(self, name: str) -> str | None:
        """Return Megatron-core's name of a tensor of another module than the language model; None for its own."""
        return next((core + name.removeprefix(hf) for hf, core in self.others.items() if name.startswith(hf)), None)

    def other_in_core(self, key: str) -> str | None:
        """Return the name in files of a Megatron-core tensor of another module; None for the language model's."""
        return next((hf + key.removeprefix(core) for hf, core in self.others.items() if key.startswith(core)), None)

    def usual(self, name: str) -> str:
        """Return the usual name of a tensor in files."""
        found = next((prefix for prefix in self.aliases if name.startswith(prefix)), None)
        return name if found is None else self.aliases[found] + name.removeprefix(found)

    def in_class(self, name: str) -> str:
        """Return the name of a module of the language model in transformers' class."""
        own = self.module is not None and name.startswith(self.language)
        return f"{self.module}{name.removeprefix(self.language)}" if own else name


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """The parameters of one family.

    Attributes:
        embedding, final: tensors before and after the layers.
        attention, dense, sparse: tensors of every layer, of dense layers, of layers with experts.
        mtp: tensors of a multi-token-prediction layer besides those of its transformer layer.
        mtp_names: prefixes in its files of a multi-token-prediction layer's own tensors and of its transformer layer,
            where these are not those of a layer after the last; config.json does not say then whether there is one.
        mtp_copies: tensors of such a layer that repeat one outside of it (name in the layer: name outside).
        spellings: other ways to store a layer.
        ignored: pattern (of the whole name) to the reason why such a tensor is ignored.
        enclosing: the multimodal model that it is part of, if any.
        prefix: what precedes names of layers in files of a model of language alone.
        aliases: patterns of other names in files, for reading only, and what they are in the usual ones; all that
            match are applied, in order.
        no_adapters: why LoRA adapters of the family are not converted; "": they are.
    """

    embedding: tuple[Row, ...]
    final: tuple[Row, ...]
    attention: tuple[Row, ...]
    dense: tuple[Row, ...]
    sparse: tuple[Row, ...] = ()
    mtp: tuple[Row, ...] = ()
    mtp_names: tuple[str, str] | None = None
    mtp_copies: Mapping[str, str] | None = None
    spellings: tuple[Spelling, ...] = ()
    ignored: Mapping[str, str] | None = None
    enclosing: Enclosing | None = None
    prefix: str = _LANGUAGE
    aliases: Mapping[str, str] = field(default_factory=dict)
    no_adapters: str = ""

    def named(self, name: str) -> str:
        """Return the name in files of a tensor of these tables, which is named as in a model of language alone."""
        if not name.startswith(_LANGUAGE):
            return name
        before = self.prefix if self.enclosing is None else self.enclosing.language
        return before + name.removeprefix(_LANGUAGE)

    def usual(self, name: str) -> str:
        """Return the usual name of a tensor in files."""
        for pattern, replacement in self.aliases.items():
            name = re.sub(pattern, replacement, name)
        return name if self.enclosing is None else self.enclosing.usual(name)

    def in_class(self, name: str) -> str:
        """Return the name of a module in transformers' class, by which PEFT names it."""
        return name if self.enclosing is None else self.enclosing.in_class(name)

    @property
    def embedding_name(self) -> str:
        """Name of the embedding in files."""
        return self.named(self.embedding[0].hf[0].name)

    @property
    def head_name(self) -> str:
        """Name in files of the output layer."""
        return next(row.hf[0].name for row in self.final if row.kind == "vocabulary")


def sizes(model: Model) -> dict[str, int]:
    """Return the sizes used in tables, in elements; 0 for sizes that a model does not have."""
    heads, groups = model.num_attention_heads or 0, model.num_key_value_heads or model.num_attention_heads or 0
    head, hidden = model.head_size or 0, model.hidden_size or 0
    nope, rotated, value = (size or 0 for size in (model.qk_nope_head_dim, model.qk_rope_head_dim, model.v_head_dim))
    q_rank, kv_rank = model.q_lora_rank or 0, model.kv_lora_rank or 0
    return {
        "hidden": hidden,
        "2*hidden": 2 * hidden,
        "vocab": model.vocab_size or 0,
        "head": head,
        "heads": heads,
        "query": heads * head,
        "key": groups * head,
        "query+2*key": (heads + 2 * groups) * head,
        "ffn": model.intermediate_size or 0,
        "2*ffn": 2 * (model.intermediate_size or 0),
        "experts": model.num_experts or 0,
        "expert_ffn": model.moe_intermediate_size or 0,
        "shared_ffn": model.shared_expert_intermediate_size or 0,
        "q_rank": q_rank,
        "kv_rank": kv_rank,
        "kv_rank+rotated": kv_rank + rotated,
        "index_heads": model.index_n_heads or 0,
        "index_head": model.index_head_dim or 0,
        "index_query": (model.index_n_heads or 0) * (model.index_head_dim or 0),
        "gated_query": 2 * heads * head,
        **_linear_sizes(model),
        **_compressed_sizes(model),
        "latent_query": heads * (nope + rotated),
        "latent_key_value": heads * (nope + value),
        "latent_value": heads * value,
    }


def _linear_sizes(model: Model) -> dict[str, int]:
    keys, values = model.linear_num_key_heads or 0, model.linear_num_value_heads or 0
    key, value = keys * (model.linear_key_head_dim or 0), values * (model.linear_value_head_dim or 0)
    return {
        "linear_values": values,
        "linear_value_head": model.linear_value_head_dim or 0,
        "linear_value": value,
        "linear_conv": 2 * key + value,
        "linear_kernel": model.linear_conv_kernel_dim or 0,
        "linear_qkvz": 2 * key + 2 * value,
        "linear_ba": 2 * values,
    }


def _compressed_sizes(model: Model) -> dict[str, int]:
    """Return sizes of DeepSeek-V4: hyper-connections, and attention whose output has a low rank in groups of heads."""
    streams, groups = model.hc_mult or 0, model.o_groups or 0
    values = (model.num_attention_heads or 0) * (model.v_head_dim or 0)
    return {
        "streams": streams,
        "streams*hidden": streams * (model.hidden_size or 0),
        "stream_weights": streams * (streams + 2),
        "chosen": model.num_experts_per_tok or 0,
        "output_ranks": groups * (model.o_lora_rank or 0),
        "group_value": values // groups if groups else 0,
        "2*kv_rank": 2 * (model.kv_lora_rank or 0),
        "2*index_head": 2 * (model.index_head_dim or 0),
    }
