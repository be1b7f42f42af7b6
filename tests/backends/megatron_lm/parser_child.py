"""Megatron-LM's own parser, validator and configuration on CPU: reads command lines as JSON, answers with verdicts.

Run with the checkout as only argument. Transformer Engine and a Hopper device are pretended, nothing else is changed;
`batch_invariant_kernels` and `paged_stash` (0.18) are stubbed because they need triton and are imported in any case;
`six`, which BERT's tokenizer imports until 0.16, where it is not installed.
"""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import sys
import types
import typing
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent))
import namespaces

# args_defaults of pretrain_gpt.py:326 @core_v0.12.1, :347 @core_v0.16.1.
DEFAULTS = {"tokenizer_type": "GPT2BPETokenizer"}

_IMPORTERS_OF_TRITON = (
    "megatron.core.transformer.custom_layers.batch_invariant_kernels",
    "megatron.core.transformer.moe.paged_stash",
)


def prepare(checkout: str) -> tuple[Any, Any]:
    """Import Megatron's arguments and transformer configuration from the checkout."""
    sys.path.insert(0, checkout)
    # 0.18 is written for Python 3.12, whose typing.override changes nothing at run time.
    if not hasattr(typing, "override"):
        typing.override = lambda method: method  # type: ignore[attr-defined]
    import torch

    torch.compile = lambda function=None, **_: function if function is not None else lambda inner: inner
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    torch.cuda.get_device_properties = lambda *_: types.SimpleNamespace(major=9, minor=0)
    torch.distributed.get_rank = lambda *_: 0  # 0.13 prints a layout on one rank
    without_six = () if importlib.util.find_spec("six") else ("six",)
    for name in (*_IMPORTERS_OF_TRITON, *without_six):
        stub = mock.MagicMock(__spec__=importlib.machinery.ModuleSpec(name, None), __path__=[])
        sys.modules[name] = stub
    from megatron.core.models.common.embeddings import rope_utils
    from megatron.core.transformer import transformer_config
    from megatron.core.transformer.moe import moe_utils
    from megatron.training import arguments

    rope_utils.fused_apply_rotary_pos_emb = rope_utils.fused_apply_rotary_pos_emb or mock.MagicMock()
    permutes = ("fused_permute", "fused_unpermute", "fused_sort_chunks_by_index")
    for fused in (*permutes, "fused_permute_with_probs", "fused_sort_chunks_by_index_with_probs"):
        setattr(moe_utils, fused, getattr(moe_utils, fused, None) or mock.MagicMock())
    for module in (arguments, transformer_config):
        if hasattr(module, "is_te_min_version"):
            module.is_te_min_version = lambda *_, **__: True
    return arguments, transformer_config


def verdict(
    arguments: Any, transformer_config: Any, argv: list[str], world_size: int, env: dict[str, str] | None = None
) -> str:
    """Return what Megatron has against a command line; empty where it accepts it."""
    return str(values(arguments, transformer_config, argv, world_size, env)["said"])


def values(
    arguments: Any, transformer_config: Any, argv: list[str], world_size: int, env: dict[str, str] | None = None
) -> dict[str, Any]:
    """Return what Megatron has against a command line, and what its validation changes in the namespace."""
    variables = {**(env or {}), "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(world_size)}
    with mock.patch.dict(os.environ, variables):
        return _values(arguments, transformer_config, argv)


def _values(arguments: Any, transformer_config: Any, argv: list[str]) -> dict[str, Any]:
    sys.argv = ["pretrain_gpt.py", *argv]
    reported = io.StringIO()
    stage = "parser"
    try:
        with contextlib.redirect_stdout(reported), contextlib.redirect_stderr(reported):
            args = arguments.parse_args()
            namespaces.own_lists(args)
            parsed = namespaces.snapshot(args)
            stage = "validate_args"
            arguments.validate_args(args, DEFAULTS)
            stage = "TransformerConfig"
            mla = transformer_config.MLATransformerConfig if args.multi_latent_attention else None
            config = arguments.core_transformer_config_from_args(args, mla)
    except (Exception, SystemExit) as error:
        last = reported.getvalue().strip().rpartition("\n")[2] if stage == "parser" else ""
        return {"said": f"{stage}: {type(error).__name__}: {error} {last}"}
    return {"said": "", "changed": namespaces.changed(parsed, args, config)}


def main() -> None:
    """Answer every line of the input with one line."""
    os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    os.environ["NVTE_CPU_OFFLOAD_V1"] = "1"
    modules = prepare(sys.argv[1])
    answers = [
        verdict(*modules, line["argv"], line["world_size"], line.get("env")) for line in map(json.loads, sys.stdin)
    ]
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
