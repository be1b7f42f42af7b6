"""Columns for several versions of one backend: what a version needs to express a job, and its interpreter."""

from collections.abc import Mapping, Sequence

# MindFormers 1.6 trains these families with its older classes only, from token files that are named as such.
_OLDER = ("model.legacy=true", "data.format=megatron", "kernels.attention_backend=flash")
WORDS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "mindformers@1.6.0": {"Qwen2.5 (biases)": _OLDER, "Llama 3": _OLDER},
}
"""By column (NAME or NAME@VERSION) and name of the job: overrides besides those of the job."""


def words_of(column: str, job: str) -> Sequence[str]:
    """Return the further overrides of a job in a column."""
    return WORDS.get(column, {}).get(job, ())


def python_words(column: str, pairs: Sequence[str]) -> list[str]:
    """Return `--python` for a column, from NAME=PATH or NAME@VERSION=PATH."""
    paths = dict(pair.split("=", 1) for pair in pairs)
    path = paths.get(column)
    return [] if path is None else ["--python", f"{column.partition('@')[0]}={path}"]
