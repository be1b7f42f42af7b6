"""Builds the real HfArgumentParser of each `megatron` command from an installed ms-swift 4.x and prints its options.

    python -m tools.catalogue.swift_child

Runs without a device: TransformerEngine and triton, which mcore-bridge imports, are stood in for. What the catalogue of
that version says, made by reading the source, is compared with this (tests/backends/test_catalogues.py).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import warnings
from typing import Any

from tools.catalogue import stand_ins
from tools.catalogue.megatron_swift import classes_of
from tools.catalogue.recorder import plain_value

# A fake triton as a whole would break torch and transformers; these are the packages that import it.
_ABSENT = (
    "transformer_engine",
    "transformer_engine_torch",
    "mcore_bridge.model.modules.kernels",
    "megatron.core.inference.contexts.attention_context.triton",
)


def describe(action: argparse.Action) -> dict[str, Any]:
    """Return what the parser does with one option."""
    names = sorted(option.lstrip("-") for option in action.option_strings)
    kind = getattr(action.type, "__name__", str(action.type))
    return {
        "dest": action.dest,
        "options": names,
        "type": kind,
        "nargs": action.nargs,
        "default": plain_value(action.default),
        "choices": None if action.choices is None else [plain_value(choice) for choice in action.choices],
        "required": action.required,
        "negation": type(action).__name__ == "_StoreFalseAction",
    }


def main() -> None:
    """Print {command: [option, …]} as JSON."""
    warnings.filterwarnings("ignore")
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    with contextlib.redirect_stdout(sys.stderr):
        import transformers
        import transformers.utils  # before the stand-ins: it asks which packages are installed

        stand_ins.install(_ABSENT)
        from swift.megatron import arguments

        result = {}
        for command, name in classes_of(lambda wanted: hasattr(arguments, wanted)).items():
            parser = transformers.HfArgumentParser([getattr(arguments, name)])
            result[command] = [describe(action) for action in parser._actions if action.dest != "help"]
    print(json.dumps(result, default=repr))


if __name__ == "__main__":
    main()
