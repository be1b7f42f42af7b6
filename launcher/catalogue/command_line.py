"""Writes values for Python's argparse so that none is parsed as an option."""

import re
from collections.abc import Sequence

# argparse's own pattern up to Python 3.12; later versions accept more. Any other text after `-` is an option.
_NEGATIVE = re.compile(r"-\d+|-\d*\.\d+")


def looks_like_option(text: str) -> bool:
    """Return whether argparse parses a separate word as an option (argparse.ArgumentParser._parse_optional)."""
    return len(text) > 1 and text.startswith("-") and not _NEGATIVE.fullmatch(text)


def can_be_written(texts: Sequence[str]) -> bool:
    """Return whether the values of one option can be written: only a single one may begin with `-`, after `=`.

    Not `--` alone: argparse up to Python 3.12 removes it even there.
    """
    return texts[0] != "--" if len(texts) == 1 else not any(map(looks_like_option, texts))


def option(name: str, texts: Sequence[str]) -> list[str]:
    """Return the words of one option: `--name value …`, or `--name=value` where the value begins with `-`."""
    if len(texts) == 1 and looks_like_option(texts[0]):
        return [f"--{name}={texts[0]}"]
    return [f"--{name}", *texts]
