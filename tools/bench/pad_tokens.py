"""Counts the pre-training scripts of upstream whose loss mask depends on the tokenizer's padding token.

    python -m tools.bench.pad_tokens --facts DIR

DIR holds corpus_mindspeed.jsonl, as for tools.bench.corpus. A script is exposed where its class of tokenizers pads with
the end of a document for want of another token (MS-PAD-EOS, MS-PAD-EOS-MASKED); its tokenizer's path is a placeholder,
so that only a run on that machine tells whether it does.
"""

import argparse
from collections import Counter
from pathlib import Path

from launcher.importing.judge import judge_existing
from tools.bench.corpus import CORPORA, outcomes

_FILE = "corpus_mindspeed.jsonl"
_RULES = ("MS-PAD-EOS", "MS-PAD-EOS-MASKED")


def figures(facts: Path) -> Counter[str]:
    """Return how many scripts pre-train, are exposed, and mask ever more tokens."""
    found: Counter[str] = Counter()
    for each in outcomes(facts / _FILE, *CORPORA[_FILE]):
        if each.imported is None or each.imported.job.task.type != "pretrain":
            continue
        messages = [f.message for f in judge_existing(each.imported, fixes=False).findings if f.rule in _RULES]
        found["scripts"] += 1
        found["exposed"] += bool(messages)
        found["lost"] += any("NaN" in message for message in messages)
    return found


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--facts", type=Path, required=True, metavar="DIR", help=f"folder with {_FILE}")
    found = figures(parser.parse_args().facts)
    print(
        f"{found['exposed']} of {found['scripts']} pre-training scripts mask the padding of a Hugging Face tokenizer,"
    )
    print(f"{found['lost']} of them in one mask for all samples")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
