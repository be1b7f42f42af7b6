"""Explicit pipeline layouts: what stands in which chunk, and the error of layers that cannot be split."""

import re


class CannotSplit(ValueError):
    """The layers cannot be spread over the stages; `fields` names what to change."""

    def __init__(self, message: str, fields: tuple[str, ...]) -> None:
        super().__init__(message)
        self.fields = fields


# Layers of any model that was ever trained, many times over: more is a slip of the keyboard.
MOST_LAYERS = 100_000


def parse_layout(text: str) -> list[str]:
    """Return the chunks of a layout such as `Et*3|(tt|)*29,m|L` as strings of E, t, m and L.

    Raises:
        CannotSplit: a letter is unknown, or repeated without end.
    """
    if any(int(number) > MOST_LAYERS for number in re.findall(r"\d{1,18}", text)):
        raise CannotSplit(f"a layout repeats nothing more than {MOST_LAYERS:,} times", ("parallel.layout",))
    text = re.sub(r"\(([^)]+)\)\*(\d+)", lambda match: match[1] * int(match[2]), text.replace(",", "").replace(" ", ""))
    text = re.sub(r"(.)\*(\d+)", lambda match: match[1] * int(match[2]), text)
    wrong = sorted(set(text) - set("EtmL|"))
    if wrong:
        raise CannotSplit(f"{''.join(wrong)!r} is no part of a layout: E, t, m, L, |, (…)*n", ("parallel.layout",))
    return text.split("|")
