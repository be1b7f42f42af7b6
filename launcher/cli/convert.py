"""`launch convert`: converts checkpoints in both directions and verifies the result."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from backends import BUILT_IN
from launcher.cli.convert_merge import merge_body, merge_parser
from launcher.cli.options import composed_of, parse, parser, print_json
from launcher.cli.refusal import NotDone, WrongUse
from launcher.mapping.examples import filled
from launcher.report.text_page import print_lines

if TYPE_CHECKING:
    from launcher.convert.asked import Asked
    from launcher.convert.conversion import Conversion
    from launcher.job import Job

SUBVERBS = {
    "hf-to-mcore": "a Hugging Face model to a training checkpoint",
    "mcore-to-hf": "a training checkpoint to a Hugging Face model",
    "reshard": "a training checkpoint to another layout or format",
    "verify": "compare two checkpoints (exit 3: equal after rounding)",
    "merge": "add a LoRA adapter to the model that it was trained on",
}
_HELP = """\
usage: launch convert {verbs} …

{lines}
example:
  launch convert hf-to-mcore --model Qwen3-8B --out Qwen3-8B-mcore
  launch convert hf-to-mcore --model Qwen3-8B --out Qwen3-8B-tp2 --backend {npu} parallel.tp=2 parallel.pp=2
  launch convert mcore-to-hf --checkpoint checkpoints --model Qwen3-8B --out Qwen3-8B-trained
  launch convert verify Qwen3-8B Qwen3-8B-mcore
--help of each lists its options. Every conversion is verified byte by byte
unless --no-verify is given.
"""


def main(words: list[str]) -> int:
    """Convert; exit 1 if the conversion is refused or cannot be verified, 2 for a wrong command line."""
    if not words or words[0] in ("-h", "--help"):
        lines = "".join(f"  {name:12} {doc}\n" for name, doc in SUBVERBS.items())
        print(filled(_HELP.replace("{verbs}", "|".join(SUBVERBS)).replace("{lines}", lines)), end="")
        return 0 if words else 2
    if words[0] not in SUBVERBS:
        raise WrongUse(f"{words[0]!r} is not one of {', '.join(SUBVERBS)}", "launch convert --help")
    verb, rest = words[0], words[1:]
    made = _parser(verb)
    options = parse(made, rest)
    if getattr(options, "rewrite", False) and not options.adapter:
        raise WrongUse("--rewrite needs --adapter DIR", f"{made.prog} --help")
    if options.workers is not None and options.workers < 1:
        raise WrongUse(f"--workers {options.workers}: must be at least 1", "--workers 1")
    for name in ("left", "right", "checkpoint", "model", "adapter"):
        folder = getattr(options, name, None)
        if folder is not None and not Path(folder).expanduser().exists():
            raise WrongUse(f"{folder}: no such folder")
    if verb != "merge":
        # numpy's OpenBLAS starts a thread for each processor when it is imported; only a merge multiplies matrices.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    return _reported(_BODIES[verb], options)


def _parser(verb: str) -> argparse.ArgumentParser:
    if verb == "merge":
        return merge_parser()
    made = parser(f"convert {verb}", _described(verb), _example(verb), overrides=verb != "verify")
    if verb == "verify":
        made.add_argument("left", metavar="A", help="a checkpoint")
        made.add_argument("right", metavar="B", help="another checkpoint of the same model")
    elif verb == "hf-to-mcore":
        made.add_argument("--model", metavar="DIR", required=True, help="Hugging Face model")
        made.add_argument("--adapter", metavar="DIR", help="convert this LoRA adapter (as PEFT saves it) of the model")
        made.add_argument(
            "--rewrite",
            action="store_true",
            help="--adapter: write an equal one where a training stack cannot store it as it is",
        )
    else:
        made.add_argument("--checkpoint", metavar="DIR", required=True, help="training checkpoint")
    if verb != "hf-to-mcore":
        made.add_argument("--model", metavar="DIR", help="folder with config.json (and tokenizer) of the model")
    if verb != "verify":
        _add_writing(made, verb)
    made.add_argument("--workers", type=int, metavar="N", help="threads; default: half the processors, at most 8")
    return made


def _described(verb: str) -> str:
    text = SUBVERBS[verb]
    return f"Convert {text}." if text.startswith("a ") else f"{text[0].upper()}{text[1:]}."


def _add_writing(made: argparse.ArgumentParser, verb: str) -> None:
    made.add_argument("--out", metavar="DIR", required=True, help="folder to write; created once complete")
    if verb != "mcore-to-hf":
        made.add_argument("--backend", metavar="NAME", help="write the format that this backend loads")
        made.add_argument("--format", metavar="NAME", help="torch_dist, legacy …; default: the backend's own")
        made.add_argument(
            "--layers", choices=("transformer_engine", "local"), help="naming of layers; default: the format's"
        )
    made.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="an option of the target format")
    made.add_argument(
        "--source",
        action="append",
        default=[],
        metavar="OVERRIDE",
        help="layout of the source, if its files do not record it",
    )
    if verb != "hf-to-mcore":
        made.add_argument(
            "--fp8",
            choices=("blockwise",),
            help="Hugging Face target: linear layers in FP8 with blockwise scales, as DeepSeek-V3 is published; what"
            " --model has in FP8 and training left alone comes back to the byte",
        )
    made.add_argument("--dtype", metavar="T", help="cast to bf16, fp16 or fp32; default: no cast")
    made.add_argument(
        "--allow-overflow",
        action="store_true",
        help="finite values that do not fit --dtype become infinite; default: they are refused",
    )
    made.add_argument("--no-verify", action="store_true", help="do not compare the result with the source")
    made.add_argument("--overwrite", action="store_true", help="replace a conversion or checkpoint at --out")
    made.add_argument("--durable", action="store_true", help="flush everything to disk before renaming")
    made.add_argument("--dry-run", action="store_true", help="show the plan, its size and its time; write nothing")


def _example(verb: str) -> str:
    return {
        "hf-to-mcore": "launch convert hf-to-mcore --model Qwen3-8B --out Qwen3-8B-mcore parallel.tp=2 parallel.pp=2",
        "mcore-to-hf": "launch convert mcore-to-hf --checkpoint checkpoints --model Qwen3-8B --out Qwen3-8B-trained",
        "reshard": "launch convert reshard --checkpoint A --out B --format legacy parallel.tp=8",
        "verify": "launch convert verify Qwen3-8B Qwen3-8B-mcore",
    }[verb]


def _reported(body: Callable[[argparse.Namespace], int], options: argparse.Namespace) -> int:
    """Run a body; report how to install a library that it needs and that is missing."""
    try:
        return body(options)
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name not in ("numpy", "torch", "xxhash"):
            raise
        works = "torch" if name == "torch" else "'launch-llm[convert]'"
        raise NotDone(f"{name} is needed for this conversion", f"pip install {works}") from None


def _convert(options: argparse.Namespace) -> int:
    from launcher.convert.request import request

    with request(_asked(options)) as asked:
        return _converted(options, asked)


def _asked(options: argparse.Namespace) -> Asked:
    """Return the options as `launcher.convert` takes them; composes the jobs that overrides describe."""
    from launcher.convert.asked import Asked

    backend = getattr(options, "backend", None)
    return Asked(
        out=options.out,
        to_hf=not hasattr(options, "format"),
        model=options.model,
        checkpoint=getattr(options, "checkpoint", None),
        adapter=getattr(options, "adapter", None),
        rewrite=getattr(options, "rewrite", False),
        job=_job(options.overrides, options.config_dir, backend),
        source_job=_job(options.source, options.config_dir),
        backend=backend,
        format=getattr(options, "format", None),
        layers=getattr(options, "layers", None),
        options=tuple(options.set),
        fp8=getattr(options, "fp8", None),
        dtype=options.dtype,
        verify=not options.no_verify,
        overwrite=options.overwrite,
        durable=options.durable,
        allow_overflow=options.allow_overflow,
        workers=options.workers,
        dry_run=options.dry_run,
        warn=lambda text: print_lines([text], sys.stderr),
    )


def _job(overrides: Sequence[str], config_dirs: Sequence[str], backend: str | None = None) -> Job | None:
    """Return the job whose layout is used; None without overrides.

    Of a built-in backend, the file of its group holds only its name. Without other files, plain values need no Hydra.
    """
    if not overrides:
        return None
    if not config_dirs and (backend is None or backend in BUILT_IN):
        from launcher.job.plain import plain_job

        job = plain_job(overrides)
        if job is not None:
            return job
    from launcher.rules.passthrough import with_passthrough

    named = any(word.startswith("backend=") for word in overrides)
    job = composed_of([*overrides, *([f"backend={backend}"] if backend and not named else [])], config_dirs)
    return with_passthrough(job, and_arguments=True)


def _converted(options: argparse.Namespace, asked: Conversion) -> int:
    from launcher.convert.convert import execute, prepare
    from launcher.convert.report import Report

    prepared = prepare(asked)
    planned = Report.of(prepared)
    if options.dry_run:
        from launcher.convert.estimate import expected

        answer = expected(prepared)
        if options.json:
            print_json({"ok": True, "dry_run": True, **planned.as_tree(), **answer.as_tree()})
        else:
            print_lines([*planned.lines(), *answer.lines()], sys.stdout)
        return 0
    if not options.json:
        print_lines(planned.lines(), sys.stdout)
    report = execute(prepared, quiet=options.json, warn=lambda text: print_lines([text], sys.stderr))
    if options.json:
        print_json({"ok": True, **report.as_tree()})
    else:
        print_lines(report.times(), sys.stdout)
    return 0


def _verify(options: argparse.Namespace) -> int:
    from launcher.convert.compare import between
    from launcher.convert.lora.alone import are_peft
    from launcher.convert.model import config_folder, has_config, model_in

    left, right = Path(options.left).expanduser(), Path(options.right).expanduser()
    named = Path(options.model).expanduser() if options.model else None
    folders = [named, left, right]
    alone = are_peft(left, right) and not any(map(has_config, folders))
    model = None if alone else model_in(config_folder(folders, works="--model DIR"))
    answer = between(left, right, model, workers=options.workers, quiet=options.json)
    if options.json:
        print_json(answer.as_tree())
    else:
        print_lines(answer.lines(), sys.stdout)
    return _CODES[answer.outcome]


# 3: the checkpoints differ only by a cast, so they are neither different (1) nor the same weights (0).
_CODES = {"equal": 0, "different": 1, "equal_after_rounding": 3}
_BODIES: dict[str, Callable[[argparse.Namespace], int]] = {
    "hf-to-mcore": _convert,
    "mcore-to-hf": _convert,
    "reshard": _convert,
    "verify": _verify,
    "merge": merge_body,
}
