"""Builds one project's real argparse parser and prints its options as JSON; `tools.catalogue`'s child process."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import types
import typing
import warnings
from pathlib import Path
from typing import Any

from tools.catalogue import stand_ins
from tools.catalogue.recorder import Recorder

# Unconditional importers of triton on the way to the arguments: of Megatron-LM 0.16, and of 0.18 and later.
_TRITON_USERS = (
    "megatron.core.transformer.custom_layers.batch_invariant_kernels",
    "megatron.core.transformer.moe.paged_stash",
)
# Imported unconditionally somewhere below megatron.training or mindspeed_llm, irrelevant to arguments.
_OPTIONAL = (
    "six", "einops", "peft", "sentencepiece", "datasets", "transformers", "regex", "jsonlines", "scipy", "pandas",
    "nltk", "accelerate", "safetensors", "tokenizers", "tqdm", "ray", "hydra", "pyarrow", "sklearn", "cloudpickle",
)  # fmt: skip
_NPU = ("torch_npu", "acl", "torchair", "te", "tbe", "mindio_acp", "mindio_ttp", "triton", "transformers", "accelerate")


def megatron_lm() -> argparse.ArgumentParser:
    """Return Megatron-LM's parser as `parse_args` makes it (megatron/training/arguments.py)."""
    stand_ins.install(_TRITON_USERS)
    stand_ins.install(_OPTIONAL, only_missing=True)
    # 0.19 is written for Python 3.12, whose typing.override changes nothing at run time.
    if not hasattr(typing, "override"):
        typing.override = lambda method: method  # type: ignore[attr-defined]
    from megatron.training import arguments

    return _captured(arguments)


def mindspeed_llm() -> argparse.ArgumentParser:
    """Return the parser of pretrain_gpt.py: Megatron-LM's, MindSpeed's and MindSpeed-LLM's options in one."""
    stand_ins.install(_NPU)
    stand_ins.install(_OPTIONAL, only_missing=True)
    import packaging.version
    import torch

    # Megatron-LM 0.8 compares versions through setuptools' old copy; the answers must be real.
    sys.modules.setdefault("pkg_resources", types.SimpleNamespace(packaging=packaging))  # type: ignore[arg-type]
    stand_ins.pretend_accelerator()
    import torch_npu

    torch.npu = torch_npu.npu
    import mindspeed_llm  # noqa: F401  patches megatron on import
    from megatron.training import arguments

    return _captured(arguments)


def _captured(arguments: Any) -> argparse.ArgumentParser:
    """Let the project's own `parse_args` build its parser, and return that instead of parsing.

    A feature that parses while it registers (MindSpeed-LLM's MindSporePatchFeature does) is let through.
    """
    found: list[argparse.ArgumentParser] = []
    plain = argparse.ArgumentParser.parse_known_args

    class Caught(Exception):
        pass

    def parse_known_args(parser: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> Any:
        near, far = sys._getframe(1).f_code, sys._getframe(2).f_code
        if any(code.co_filename == arguments.__file__ and code.co_name == "parse_args" for code in (near, far)):
            found.append(parser)
            raise Caught
        return plain(parser, *args, **kwargs)

    argparse.ArgumentParser.parse_known_args = parse_known_args  # type: ignore[method-assign, assignment]
    try:
        with contextlib.suppress(Caught):
            arguments.parse_args()
    finally:
        argparse.ArgumentParser.parse_known_args = plain  # type: ignore[method-assign]
    return found[0]


PROJECTS = {"megatron_lm": megatron_lm, "mindspeed_llm": mindspeed_llm}


def main(argv: list[str]) -> None:
    """Print the rows of PROJECT, whose checkouts are given as LABEL=PATH."""
    warnings.filterwarnings("ignore")
    project, *pairs = argv
    roots = {label: Path(path) for label, _, path in (pair.partition("=") for pair in pairs)}
    sys.argv = [project]
    for path in reversed(list(roots.values())):
        sys.path.insert(0, str(path))
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    sys.dont_write_bytecode = True
    recorder = Recorder(roots)
    recorder.install()
    with contextlib.redirect_stdout(sys.stderr):
        parser = PROJECTS[project]()
    rows = recorder.rows(parser)
    print(json.dumps({"allow_abbrev": parser.allow_abbrev, "rows": rows}))


if __name__ == "__main__":
    main(sys.argv[1:])
