"""Regular expressions of POSIX, basic and extended, as Python's."""

import re

_LONGEST_PATTERN = 200
CLASSES = {"space": " \t\n\r\f\v", "blank": " \t", "digit": "0-9", "alpha": "A-Za-z", "alnum": "A-Za-z0-9"}
CLASSES |= {"upper": "A-Z", "lower": "a-z", "xdigit": "0-9A-Fa-f"}
"""Character classes of POSIX: name to what stands for it between brackets."""


def searching(pattern: str, *, extended: bool) -> "re.Pattern[str] | None":
    """Return a basic or extended POSIX regular expression as a Python one; None if it is not simple."""
    if len(pattern) > _LONGEST_PATTERN or re.search(r"\)[+*{]|\\[1-9]", pattern):
        return None
    if not extended:  # there, \+ \? \| \( \) \{ \} are the operators, and unescaped characters are literal
        pattern = re.sub(
            r"\\?[+?|(){}]",
            lambda found: found.group()[-1:] if len(found.group()) > 1 else "\\" + found.group(),
            pattern,
        )
    pattern = with_classes(pattern)
    try:
        return re.compile(pattern, re.MULTILINE)
    except re.error:
        return None


def with_classes(pattern: str) -> str:
    """Return a regular expression with characters for `[[:space:]]` and the like; an unknown class matches nothing."""
    return re.sub(
        r"\[\[:(\w+):\]\]", lambda found: f"[{CLASSES[found[1]]}]" if found[1] in CLASSES else "(?!)", pattern
    )
