"""The page of models, from the family table, the presets and the list of keys that may be ignored."""

from pathlib import Path

from backends import BUILT_IN
from launcher.catalogue.registered import registered
from launcher.compose import compose
from launcher.compose.variants import VARIANTS, Variant
from launcher.families.ignored import IGNORABLE
from launcher.families.record import Family
from launcher.families.registry import FAMILIES
from launcher.job.model import Model
from launcher.job.shipped import shipped
from launcher.mapping.backend import Backend, get_backend
from tools.docs.written import escaped

ROOT = Path(__file__).resolve().parents[3]
HEAD = """# Models

A job's `model` section comes from a preset or from a model's own config.json; overrides win over both:

```bash
launch dry-run +recipe=qwen3_8b backend=megatron model=qwen3_14b             # a preset instead of the recipe's
launch dry-run +recipe=qwen3_8b backend=megatron model.path=/models/mine     # config.json of a Hugging Face directory
launch dry-run +recipe=qwen3_8b backend=megatron model.num_hidden_layers=4   # one field
```

`model.pretrained` says whether training starts from the published weights (the default where `model.path` or
`model.hub_id` is given) or from random ones. `model.overridden` lists, in `dry-run --json`, every field that differs
from the config.json that the job names; `SENSE-CONFIG` tells each such value beside the file's, and
`SENSE-MODEL-REPLACED` a `model.path` with another model than that of the recipe, whose layout and learning rate stay.

What config.json says is laid under what the job says: a value of the command line, a recipe, a job file or an imported
script stands, even if it is the default. A model's name, sizes, vocabulary and tokenizer are one thing:

- `+recipe=qwen3_8b model.hub_id=Qwen/Qwen3-4B` takes the sizes of that preset with its name; a name whose sizes are not
  known is refused, unless `model=qwen3_8b` beside it says that they are the same;
- `model=` and `model.path=` over a recipe remove its tokenizer and padded vocabulary if the new model's vocabulary is
  another one;
- a tokenizer of another vocabulary, another `model.model_type` than config.json's or the preset's, and a `model.hub_id`
  of another model than `model.path` are refused.

"""
FAMILY_TEXT = """## Families

A family is one file in `launcher/families/architectures`, and one row in the `families.py` of each backend. "converts":
`launch convert` knows its parameters. Then the versions of each backend that train it, with their default classes.

"""
VERSION_TEXT = """
## Versions of backends

`backend.version=` names one. "Newest upstream": the newest release, and the day of the last look (CONTRIBUTING, "What
to do when upstream releases"). Where it is not among the known ones, its arguments are not known yet.

| backend | known, with the date of the release | default | newest upstream | looked at |
|---|---|---|---|---|
"""
VARIANT_TEXT = """
## Models known by another name

`model.hub_id=` takes these names, too: the sizes are the preset's, with the values that differ. The source says where
they are written, and what was not confirmed.

| names | preset | differs | source |
|---|---|---|---|"""
READING = """
## How a config.json is read

Exactly, or not at all. Both spellings are known: `rope_theta` and `rope_scaling`, `torch_dtype`, `num_experts` or
`n_routed_experts` (transformers 4); `rope_parameters`, `dtype`, `num_local_experts`, `layer_types` (transformers 5).
Where a key is missing, the default of transformers' own class of the family is taken, but never for what must not be
guessed: sizes, the rotary base of Qwen and Mixtral, and the ranks of latent attention must be in the file. DeepSeek-V3
files saved by transformers leave out `scoring_func` and `topk_method`; the family's `sigmoid` and `noaux_tc` are then
meant. A window counts only with `use_sliding_window: true`. Qwen's layers of linear attention, GLM's indexers and
GPT-OSS's windows may be given as a number or as a list of layers (transformers 5), if a rule describes the list.

Which layers attend within a window (`max_window_layers`, `layer_types`), which are dense (`decoder_sparse_step`,
`mlp_only_layers`) and whether the output projection has a bias (`attention_bias` of Llama and Qwen3) is read layer by
layer: `model.full_attention_layers`, `model.mlp_only_layers`, `model.attention_output_bias`. Without `layer_types`,
Qwen2 and Qwen3 have the window from layer `max_window_layers` on, Qwen2-MoE in every second layer before it, and
Qwen3-MoE in all layers, as their classes have.

Models stay out where the canonical `model` section has no words for them: vision and audio (Gemma 4, Llama 4
with its vision tower; of Qwen3.5 and Qwen-VL the language model is trained, and conversions carry the tower),
longrope (Phi-4-mini), GLM-5.2's choice shared with prediction layers. Qwen2-VL is no family here: no copy of a
published config.json of it was found (2026-11-28), by which its preset could be checked.

Everything else is refused, with the file, the key and what would work: an unknown architecture, a missing key, two
spellings that contradict each other, an unknown key.
These keys do not change the model and are skipped:

| why | keys |
|---|---|
"""


def pages() -> dict[str, str]:
    """Return the page."""
    return {"models.md": _page()}


def _page() -> str:
    backends = [get_backend(name) for name in BUILT_IN]
    lines = [HEAD + FAMILY_TEXT + "| model_type | class | presets | converts |"]
    lines[0] = lines[0].removesuffix("|") + "| " + " | ".join(backend.title for backend in backends) + " |"
    lines.append("|---|---|---|---|" + "---|" * len(backends))
    presets = {path.stem: compose([f"model={path.stem}"]).model for path in _presets()}
    lines += [_family(family, presets, backends) for family in FAMILIES.values()]
    lines += ["", "## Presets", ""]
    lines += ["| model= | hub_id | layers | hidden | heads (kv) | feed-forward | experts | positions |"]
    lines += ["|---|---|---|---|---|---|---|---|", *(_preset(name, model) for name, model in presets.items())]
    lines += [VARIANT_TEXT, *(_variant(each) for each in VARIANTS)]
    reasons = dict.fromkeys(IGNORABLE.values())
    keys = {why: ", ".join(f"`{key}`" for key, reason in IGNORABLE.items() if reason == why) for why in reasons}
    versions = "".join(_versions(name) for name in BUILT_IN)
    return (
        "\n".join(lines)
        + "\n"
        + VERSION_TEXT
        + versions
        + READING
        + "\n".join(f"| {why} | {names} |" for why, names in keys.items())
        + "\n"
    )


def _variant(variant: Variant) -> str:
    names = ", ".join(f"`{name}`" for name in variant.hub_ids)
    differs = ", ".join(f"{path} {value}" for path, value in variant.differs.items())
    return f"| {names} | `{variant.preset}` | {differs} | {escaped(variant.source)} |"


def _versions(name: str) -> str:
    """Return the row of a backend's versions."""
    backend, found = get_backend(name), registered(ROOT / "backends" / name / "versions.json")
    known = ", ".join(f"{version.name} ({version.released})" for version in found.versions)
    newest = f"{found.upstream.newest} ({found.upstream.released})"
    return f"| {backend.title} | {known} | {backend.default_version} | {newest} | {found.upstream.seen} |\n"


def _presets() -> list[Path]:
    return sorted((shipped("conf") / "model").glob("*.yaml"))


def _family(family: Family, presets: dict[str, Model], backends: list[Backend]) -> str:
    members = [f"`{name}`" for name, model in presets.items() if model.model_type == family.model_type]
    converts = "yes" if family.weights is not None else "no"
    support = [_support(backend, family.model_type) for backend in backends]
    return "| " + " | ".join((family.model_type, family.architecture, ", ".join(members), converts, *support)) + " |"


def _support(backend: Backend, model_type: str) -> str:
    """Return the versions that train a family, and why the others do not."""
    row = backend.families()[model_type]
    trained = [version for version in backend.versions if row.name(version) is not None]
    if not trained:
        return f"no: {row.cannot}"
    return "yes" if len(trained) == len(backend.versions) else ", ".join(trained)


def _preset(name: str, model: Model) -> str:
    heads = f"{model.num_attention_heads} ({'latent' if model.is_mla else model.num_key_value_heads})"
    experts = "" if not model.is_moe else f"{model.num_experts}, {model.num_experts_per_tok} per token"
    if model.shared_expert_intermediate_size:
        experts += f", shared {model.shared_expert_intermediate_size}"
    width = str(model.intermediate_size)
    if model.is_moe:
        dense = f" (first {model.first_k_dense_replace}: {width})" if model.first_k_dense_replace else ""
        width = f"{model.moe_intermediate_size}{dense}"
    cells = (name, model.hub_id or "ours", model.num_hidden_layers, model.hidden_size, heads, width, experts)
    return "| " + " | ".join(str(cell) for cell in (*cells, model.max_position_embeddings)) + " |"
