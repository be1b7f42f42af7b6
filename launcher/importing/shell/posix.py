"""Regular expressions of POSIX, basic and extended, as Python's."""

import re

_LONGEST_PATTERN = 200
CLASSES = {"space": r"\s", "digit": r"\d", "alpha": "[A-Za-z]", "alnum": "[A-Za-z0-9]", "blank": "[ \t]"}


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
    pattern = re.sub(r"\[\[:(\w+):\]\]", lambda found: CLASSES.get(found.group(1), "(?!)"), pattern)
    try:
        return re.compile(pattern, re.MULTILINE)
    except re.error:
        return None
