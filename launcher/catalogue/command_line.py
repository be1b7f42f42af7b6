"""Values on a command line that Python's argparse parses: none may be taken for an option."""

import re
from collections.abc import Sequence

# argparse's own pattern up to Python 3.12; later versions take more. Anything else behind `-` is an option to it.
_NEGATIVE = re.compile(r"-\d+|-\d*\.\d+")


def looks_like_option(text: str) -> bool:
    """Tell whether argparse takes a word of its own for an option (argparse.ArgumentParser._parse_optional)."""
    return len(text) > 1 and text.startswith("-") and not _NEGATIVE.fullmatch(text)


def can_be_written(texts: Sequence[str]) -> bool:
    """Tell whether the values of one option can be written: one alone may begin with `-`, behind `=`.

    Not `--` alone: argparse up to Python 3.12 removes it even there.
    """
    return texts[0] != "--" if len(texts) == 1 else not any(map(looks_like_option, texts))


def option(name: str, texts: Sequence[str]) -> list[str]:
    """Return the words of one option: `--name value …`, or `--name=value` where the value begins with `-`."""
    if len(texts) == 1 and looks_like_option(texts[0]):
        return [f"--{name}={texts[0]}"]
    return [f"--{name}", *texts]
