"""MindFormers' run_mindformer.py for an installation from PyPI: the wheel contains all but that script."""

import argparse
import os
import sys
from typing import Any


def parse(words: list[str]) -> tuple[argparse.Namespace, list[tuple[str, str]]]:
    """Return the known options, and the ``--section.key value`` pairs that override the YAML."""
    parser = argparse.ArgumentParser(description="Train with MindFormers from its PyPI wheel.")
    parser.add_argument("--config", required=True, help="YAML file")
    parser.add_argument("--register_path", help="folder with further modules to register")
    parser.add_argument("--run_mode", choices=("train", "finetune"), help="instead of the YAML's run_mode")
    parser.add_argument("--output_dir", help="instead of the YAML's output_dir")
    known, rest = parser.parse_known_args(words)
    flat = [part for word in rest for part in word.split("=")]
    if len(flat) % 2 or not all(name.startswith("--") for name in flat[::2]):
        parser.error(f"options that override the YAML come in pairs, --section.key value; got: {' '.join(rest)}")
    return known, [(name[2:], value) for name, value in zip(flat[::2], flat[1::2], strict=True)]


def override(config: Any, name: str, text: str) -> None:
    """Set the dotted ``name`` in a MindFormerConfig to the parsed ``text``; all parent sections must exist."""
    from mindformers.tools.utils import parse_value

    *sections, key = name.split(".")
    for section in sections:
        if section not in config:
            raise SystemExit(f"run_mindformer.py: --{name}: the YAML has no section {section!r}")
        config = config[section]
    config[key] = parse_value(text)


def main(words: list[str]) -> None:
    """Build the context and train, with the calls and in the order of mindformers' run_mindformer.py (main)."""
    options, overrides = parse(words)
    if options.register_path:
        os.environ["REGISTER_PATH"] = os.path.abspath(options.register_path)
        sys.path.append(os.environ["REGISTER_PATH"])
    from mindformers.core.context import build_context
    from mindformers.tools.register import MindFormerConfig
    from mindformers.trainer import Trainer

    try:
        from mindformers.utils.file_utils import set_output_path
    except ImportError:  # before 1.7
        from mindformers.tools import set_output_path

    run_mode = {"run_mode": options.run_mode} if options.run_mode else {}
    config = MindFormerConfig(os.path.abspath(options.config), **run_mode)
    if options.output_dir:
        config.output_dir = options.output_dir
    for name, text in overrides:
        override(config, name, text)
    if config.run_mode not in ("train", "finetune"):
        raise SystemExit(f"run_mindformer.py: run_mode must be train or finetune here, not {config.run_mode!r}")
    set_output_path(config.output_dir)
    build_context(config)
    Trainer(config).train()


if __name__ == "__main__":
    main(sys.argv[1:])
