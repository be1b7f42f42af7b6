"""`launch convert merge`: merges a LoRA adapter into its Hugging Face model."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from launcher.cli.options import parser, print_json
from launcher.report.text_page import print_lines

EXAMPLE = "launch convert merge --model Qwen3-8B --adapter runs/qwen3_lora --out Qwen3-8B-merged"


def merge_parser() -> argparse.ArgumentParser:
    """Return the options of the verb."""
    made = parser("convert merge", "Add a LoRA adapter to the model that it was trained on.", EXAMPLE, overrides=False)
    made.add_argument("--model", metavar="DIR", required=True, help="Hugging Face model")
    made.add_argument("--adapter", metavar="DIR", required=True, help="adapter_config.json, adapter_model.safetensors")
    made.add_argument("--out", metavar="DIR", required=True, help="folder to write; created once complete")
    made.add_argument(
        "--allow-overflow",
        action="store_true",
        help="finite sums that do not fit the model's number format become infinite; default: they are refused",
    )
    made.add_argument("--no-verify", action="store_true", help="do not verify the result")
    made.add_argument("--overwrite", action="store_true", help="replace a conversion or checkpoint at --out")
    made.add_argument("--dry-run", action="store_true", help="show what would be merged; write nothing")
    made.add_argument("--workers", type=int, metavar="N", help="threads; default: half the processors, at most 8")
    return made


def merge_body(options: argparse.Namespace) -> int:
    """Merge the adapter; refusals are raised as exceptions."""
    from launcher.convert.convert import refuse_overlap
    from launcher.convert.lora.merge import merge, plan_merge
    from launcher.convert.ownership import checkpoint_contents
    from launcher.convert.staging import check_space, check_start
    from launcher.outputs.protected import located

    model, adapter, out = (Path(path).expanduser() for path in (options.model, options.adapter, options.out))
    planned = plan_merge(model, adapter, out)
    refuse_overlap(out, planned.read)
    target = located(out)
    check_start(target, overwrite=options.overwrite, judge=checkpoint_contents)
    if options.dry_run:
        check_space(target, planned.bytes_written, planned.files)
        if options.json:
            print_json({"ok": True, "dry_run": True, **planned.as_tree()})
        else:
            print_lines(planned.lines(), sys.stdout)
        return 0
    if not options.json:
        print_lines(planned.lines(), sys.stdout)
    lines, values = merge(
        planned,
        verify=not options.no_verify,
        overwrite=options.overwrite,
        quiet=options.json,
        workers=options.workers,
        allow_overflow=options.allow_overflow,
        warn=lambda text: print_lines([text], sys.stderr),
    )
    if options.json:
        print_json({"ok": True, **planned.as_tree(), "values": values.as_tree()})
    else:
        print_lines(lines, sys.stdout)
    return 0
