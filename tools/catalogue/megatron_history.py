"""Which release of Megatron-LM had an argument last or first, and which fork has it: what an unknown option was.

    python -m tools.catalogue.megatron_history --source ~/src/Megatron-LM \
        --fork Megatron-DeepSpeed=~/src/Megatron-DeepSpeed --fork Pai-Megatron-Patch=~/src/Pai-Megatron-Patch

Option names are read from the text of the argument files at every release tag of a clone (bare or not). The file is
backends/megatron_lm/renames.json and holds what no catalogue of ours has, and what a later one calls otherwise.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from packaging.version import Version

from launcher.catalogue.catalogue import Catalogue, load
from launcher.catalogue.versions import version_key

_FOLDER = Path(__file__).resolve().parents[2] / "backends" / "megatron_lm"
_RELEASE = re.compile(r"v[12]\.\d+|23\.\d\d|core_v\d+\.\d+\.\d+")
_FILE = re.compile(r"(^|/)(arguments|[a-z_]*_args|argument_utils|yaml_arguments)\.py$")
_OPTION = re.compile(r"add_argument\(\s*((?:['\"]--[\w-]+['\"]\s*,\s*)+)")
_NAME = re.compile(r"--([\w-]+)")
# Added by `deepspeed.add_config_arguments` (deepspeed/__init__.py), which is no file of the fork.
_DEEPSPEED = ("deepspeed", "deepspeed_config", "deepscale", "deepscale_config")
# What took the place of an argument, judged by people: arguments.py of the release after the last that has it.
_BECAME: dict[str, tuple[str | None, str]] = {
    "activations_checkpoint_method": ("recompute_method", "v2.6 renamed checkpointing to recomputation"),
    "activations_checkpoint_num_layers": ("recompute_num_layers", "v2.6 renamed checkpointing to recomputation"),
    "distribute_checkpointed_activations": ("distribute_saved_activations", "v2.6 renamed it"),
    "override_lr_scheduler": ("override_opt_param_scheduler", "v2.6 renamed it"),
    "use_checkpoint_lr_scheduler": ("use_checkpoint_opt_param_scheduler", "v2.6 renamed it"),
    "layernorm_epsilon": ("norm_epsilon", "core_v0.5 renamed it"),
    "overlap_p2p_communication": (None, "it is on by default; --no-overlap-p2p-communication turns it off"),
    "data_impl": (None, "data are memory-mapped since core_v0.4, which was the choice of mmap"),
    "DDP_impl": (None, "only Megatron's own data parallelism is left, which was the choice of local"),
}
# What later releases do without being asked, with the values for which that holds: leaving it out changes nothing.
_IMPLIED: dict[str, tuple[list[str | bool], str]] = {
    "data_impl": (["mmap"], ""),
    "DDP_impl": (["local"], ""),
    "enable_one_logger": ([True], "it is on by default; --no-one-logger turns it off"),
    "log_batch_size_to_tensorboard": ([True], "the batch size is always logged"),
    "no_query_key_layer_scaling": ([True], "it is off by default; --apply-query-key-layer-scaling turns it on"),
    "overlap_p2p_communication": ([True], ""),
    "use_contiguous_buffers_in_ddp": ([True], "buffers are always contiguous"),
}
# The same for arguments that one of our catalogues has and a later one has not.
_RENAMED: dict[str, tuple[str, str]] = {
    "keep_fp8_transpose_cache_when_using_custom_fsdp": ("keep_fp8_transpose_cache", "core_v0.14 renamed it"),
    "use_custom_fsdp": ("use_megatron_fsdp", "core_v0.14 renamed it"),
    "muon_use_nesterov": ("muon_nesterov", "core_v0.18 renamed it"),
    "tiktoken_special_tokens": ("tokenizer_special_tokens", "core_v0.16 renamed it"),
}
# Of these, those without a successor: what takes their place, and values that change nothing where they are left out.
_GONE: dict[str, tuple[str, list[bool]]] = {
    "hybrid_attention_ratio": ("hybrid-layer-pattern gives the kind of every layer", []),
    "hybrid_mlp_ratio": ("hybrid-layer-pattern gives the kind of every layer", []),
    "legacy_tokenizer": ("only megatron-core's tokenizers are left", []),
    "moe_use_legacy_grouped_gemm": ("moe-grouped-gemm chooses Transformer Engine's grouped GEMM", []),
    "no_async_tensor_model_parallel_allreduce": ("it was not read", [True]),
    "rl_reset_cuda_graphs": ("graphs are made again unless rl-persist-cuda-graphs is given", [True]),
    "tokenizer_hf_include_special_tokens": ("special tokens are included since core_v0.17", [True]),
    "tokenizer_hf_use_fast": ("the fast form is the default since core_v0.17", [True]),
    "use_legacy_models": ("only megatron-core's models are left", []),
}


def releases(repository: Path) -> list[str]:
    """Return the release tags of a clone, oldest first; release candidates are left out."""
    tags = _git(repository, "tag").split()
    return [tag for _, tag in sorted((_order(tag), tag) for tag in tags if _RELEASE.fullmatch(tag))]


def _order(tag: str) -> tuple[int, Version]:
    """Order v1.0 … v2.6, 23.04, 23.06, core_v0.4 …: the core's numbers started again."""
    return 2 if tag.startswith("core") else 1 if tag.startswith("23") else 0, version_key(tag)


def options(repository: Path, revision: str) -> set[str]:
    """Return the option names (underscores) that the argument files of a revision define."""
    files = _git(repository, "ls-tree", "-r", "--name-only", revision).splitlines()
    found: set[str] = set()
    for file in files:
        if _FILE.search(file) and "tests/" not in file:
            found |= set(_names(_git(repository, "show", f"{revision}:{file}")))
    return found


def _names(text: str) -> Iterator[str]:
    for match in _OPTION.finditer(text):
        for name in _NAME.findall(match.group(1)):
            yield name.replace("-", "_")


def _underscored(catalogue: Catalogue) -> Iterator[str]:
    return (name.replace("-", "_") for name in catalogue.names())


def _git(repository: Path, *args: str) -> str:
    done = subprocess.run(["git", "-C", str(repository), *args], capture_output=True, text=True, check=True)
    return done.stdout


def build(history: Iterable[tuple[str, set[str]]], forks: Iterable[tuple[str, set[str]]], ours: list[Catalogue]) -> Any:
    """Return the content of the file: removed and newer arguments of Megatron-LM, and those of its forks."""
    history = list(history)
    known = {name for catalogue in ours for name in _underscored(catalogue)}
    newest = history[-1][1]
    rows: dict[str, dict[str, Any]] = {}
    for name in sorted(set().union(*(names for _, names in history)) - known):
        having = [tag for tag, names in history if name in names]
        new, note = _BECAME.get(name, (None, ""))
        fact = {"since": having[0]} if name in newest else {"until": having[-1]}
        kind = "newer" if name in newest else "rename" if new else "removed"
        values, why = _IMPLIED.get(name, ([], ""))
        note = note or why
        reported = {"note": note, "implied": values}
        rows[name] = {
            "old": name,
            "new": new,
            "kind": kind,
            **fact,
            **{key: each for key, each in reported.items() if each},
        }
    for name, (new, note) in _RENAMED.items():
        until = [tag for tag, names in history if name in names][-1]
        rows[name] = {"old": name, "new": new, "kind": "rename", "until": until, "note": note}
    for name, (note, implied) in _GONE.items():
        having = [tag for tag, names in history if name in names]
        if having[-1] == history[-1][0]:
            raise ValueError(f"{name}: {having[-1]}, the newest release, has it")
        rows[name] = {"old": name, "new": None, "kind": "removed", "until": having[-1], "note": note}
        if implied:
            rows[name]["implied"] = implied
    for fork, names in forks:
        extra = names | (set(_DEEPSPEED) if "DeepSpeed" in fork else set())
        for name in sorted(extra - known - set(rows)):
            rows[name] = {"old": name, "new": None, "kind": "foreign", "of": fork}
    return {"releases": [tag for tag, _ in history], "names": sorted(rows.values(), key=lambda row: row["old"])}


def main() -> int:
    """Write the file; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.catalogue.megatron_history")
    parser.add_argument("--source", type=Path, required=True, help="clone of NVIDIA/Megatron-LM with its tags")
    parser.add_argument("--fork", action="append", default=[], metavar="NAME=CLONE")
    given = parser.parse_args()
    forks = [
        (name, options(Path(path).expanduser(), "HEAD")) for name, _, path in (f.partition("=") for f in given.fork)
    ]
    ours = [load(path) for path in sorted((_FOLDER / "catalogue").glob("*.json"))]
    # Options that 0.16 and later make of dataclasses are not in the text.
    made = {f"core_v{catalogue.version}": set(_underscored(catalogue)) for catalogue in ours}
    history = [(tag, options(given.source, tag) | made.get(tag, set())) for tag in releases(given.source)]
    content = build(history, forks, ours)
    lines = ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in content["names"])
    head = json.dumps(content["releases"])
    (_FOLDER / "renames.json").write_text(
        f'{{\n "releases": {head},\n "names": [\n  {lines}\n ]\n}}\n', encoding="utf-8"
    )
    print(f"{len(content['names'])} arguments")
    return 0


if __name__ == "__main__":
    sys.exit(main())
