"""`launch tokenize`: conversations as token numbers and labels, for backends that format no messages."""

import sys
from pathlib import Path

from launcher.cli.options import composed, parse, parser, print_json, writable
from launcher.cli.refusal import NotDone, WrongUse
from launcher.report.text_page import print_lines
from launcher.terminal import can_redraw

_EVERY = 1000


def main(words: list[str]) -> int:
    """Tokenize; exit 0 with a file, 1 where a line or the tokenizer is unusable, 2 for usage."""
    made = parser(
        "tokenize",
        "Write the conversations of data.paths (JSONL of messages) as token numbers and labels: data.format=tokenized. "
        "The chat template is the tokenizer's, the loss counts answers only.",
        "launch tokenize +recipe=qwen2_5_7b_sft model.path=DIR data.paths=[chats.jsonl] -o tokenized.jsonl",
    )
    made.add_argument("-o", "--out", metavar="FILE.jsonl", required=True, help="file to write")
    options = parse(made, words)
    from launcher.rules.passthrough import with_passthrough
    from launcher.tokenized import FILE, CannotTokenize, tokenize

    writable("-o", options.out, FILE, ".jsonl", ".json")
    job = with_passthrough(composed(options))
    folder = job.tokenizer.path or job.model.path
    if len(job.data.paths) != 1:
        raise WrongUse("data.paths: one file of conversations is needed", "data.paths=[chats.jsonl]")
    if folder is None:
        raise WrongUse("the tokenizer is not known: model.path and tokenizer.path are not set", "tokenizer.path=DIR")
    if job.batch.seq_length is None:
        raise WrongUse("batch.seq_length is not set: samples are padded to it", "batch.seq_length=4096")
    if job.data.template is not None or job.data.system is not None:
        raise NotDone(
            "data.template and data.system: only the tokenizer's own chat template is applied here",
            "data.template=null data.system=null",
        )
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise NotDone("transformers is not installed: it reads the tokenizer", "pip install transformers") from None
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError) as error:
        raise NotDone(f"{folder}: no tokenizer ({str(error).splitlines()[0]})", "tokenizer.path=DIR") from None
    if not getattr(tokenizer, "chat_template", None):
        raise NotDone(f"{folder}: the tokenizer has no chat template", "tokenizer.path=DIR of a chat model")

    def advanced(lines: int) -> None:
        if lines % _EVERY == 0 and not options.json:
            print(
                f"\r{lines:,} lines" if can_redraw(sys.stderr) else f"{lines:,} lines",
                end="",
                file=sys.stderr,
                flush=True,
            )

    out = Path(options.out)
    part = out.with_name(f"{out.name}.part")
    try:
        found = tokenize(Path(job.data.paths[0]), part, tokenizer, length=job.batch.seq_length, advanced=advanced)
        part.replace(out)
    except CannotTokenize as error:
        raise NotDone(str(error)) from None
    except OSError as error:
        raise NotDone(f"{error.filename}: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)
    if options.json:
        print_json({"file": str(out), "samples": found.samples, "cut": found.cut, "predicted": found.predicted})
        return 0
    cut = f", {found.cut:,} cut at {job.batch.seq_length} tokens" if found.cut else ""
    done = f"{out}: {found.samples:,} samples, {found.predicted:,} predicted tokens{cut}"
    print_lines([done, f"use it: data.format=tokenized data.paths=[{out}]"], sys.stdout)
    return 0
