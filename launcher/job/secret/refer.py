"""Replaces secrets by references to environment variables, so that the job still runs."""

import os
from collections.abc import Mapping
from typing import Any

from launcher.job.secret.find import REDACTED, Secret, compiled, find, is_reference, is_value, variable_of
from launcher.job.secret.names import is_secret

# Variable names that plans reference and processes expand.
_NAME = r"[A-Z][A-Z0-9_]*"
_LONE = r"\$\{?([A-Za-z_]\w*)\}?"
_EXPORT = r"(?s)(?P<head>\s*--export(?:=|\s+))(?P<list>.*)"
_ITEM = r",(?=[A-Za-z_]\w*(?:=|,|$))"
_LONG = 8


class Variables:
    """One-to-one mapping between secret values and environment variables in one job."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = os.environ if environ is None else environ
        self._by_value: dict[str, str] = {}

    def of(self, value: str, usual: str) -> str:
        """Return the variable for a value: the one that has it in the environment, else the usual one."""
        if value not in self._by_value:
            self._by_value[value] = self._chosen(value, usual)
        return self._by_value[value]

    def holding(self, value: str, usual: str) -> str | None:
        """Return the variable that has a value in the environment, the usual one first; None: none has."""
        if self._environ.get(usual) == value:
            return usual
        if len(value) < _LONG:
            return None
        return next(
            (name for name, content in self._environ.items() if content == value and compiled(_NAME).fullmatch(name)),
            None,
        )

    def _chosen(self, value: str, usual: str) -> str:
        found = self.holding(value, usual)
        if found is not None:
            return found
        taken = set(self._by_value.values())
        numbered = (f"{usual}_{number}" for number in range(2, 10_000))
        return usual if usual not in taken else next(name for name in numbered if name not in taken)


def by_reference(
    name: str, value: Any, variables: Variables | None = None, *, field: str = "", is_variable: bool = False
) -> Any:
    """Return an argument's value with secrets replaced by references, also inside lists and mappings.

    Args:
        name: name of the argument, variable or key.
        field: canonical field of the value; names the variable, but never marks the value as a secret.
        is_variable: it is an environment variable: one with a secret becomes a single reference, to itself.
    """
    variables = variables or Variables()
    if is_variable and isinstance(value, str):
        found = find(value, name)
        return f"${{{variables.holding(value, variable_of(name)) or variable_of(name)}}}" if found else value
    if value is None or value == "" or isinstance(value, bool):
        return value
    if isinstance(value, Mapping):
        return {_key(key): by_reference(str(key), item, variables) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(by_reference(name, item, variables, field=field) for item in value)
    if isinstance(value, (int, float)):
        text = str(value)
        return f"${{{variables.of(text, variable_of(name))}}}" if is_secret(name) and is_value(text, name) else value
    if not isinstance(value, str):
        return value
    return _text(name, value, variables, field)


def in_bash(text: str, variables: Variables) -> str:
    """Return bash code without secrets; references are quoted as the context requires."""
    for each in reversed(find(text, code=True)):
        name, start, end = variables.of(text[each.start : each.end], each.variable), each.start, each.end
        if text[start - 1 : start] == "'" == text[end : end + 1] and _quote_at(text, start) == "'":
            start, end = start - 1, end + 1
        text = f"{text[:start]}{_QUOTED[_quote_at(text, start)].format(name)}{text[end:]}"
    return text


def of_submission(text: str) -> str:
    """Return an option of sbatch without secrets: `--export=NAME` exports the value of NAME at submission."""
    match = compiled(_EXPORT).fullmatch(text)
    if match is None:
        return unreferred(text)
    items: list[str] = []
    rest_of_secret = False
    for item in compiled(_ITEM).split(match["list"].strip("\"'")):
        name, sign, value = item.partition("=")
        if rest_of_secret and not sign and compiled(_NAME).fullmatch(item) is None:
            continue  # after a comma in the secret
        rest_of_secret = bool(sign and find(value, name, code=True))
        items.append(name if rest_of_secret else item)
    return match["head"] + ",".join(items)


def unreferred(text: str, name: str = "") -> str:
    """Return a text with a placeholder for secrets, for readers that do not expand references."""
    for each in reversed(find(text, name, code=True)):
        text = f"{text[: each.start]}{REDACTED}{text[each.end :]}"
    return text


def _text(name: str, value: str, variables: Variables, field: str) -> str:
    lone = compiled(_LONE).fullmatch(value) if value[0] == "$" else None
    if lone is not None and not field and is_secret(name):
        return f"${{{lone[1].upper()}}}"  # plans only refer to upper-case variables
    if is_reference(value):
        return value
    for each in reversed(find(value, "" if field else name)):
        usual = _usual(each, field)
        value = f"{value[: each.start]}${{{variables.of(value[each.start : each.end], usual)}}}{value[each.end :]}"
    return value


def _usual(secret: Secret, field: str) -> str:
    """Return the usual variable of a secret; that of an address is named after its field."""
    return (
        f"{field.replace('.', '_').upper()}_PASSWORD"
        if field and secret.variable == "URL_PASSWORD"
        else secret.variable
    )


def _key(key: Any) -> str:
    return unreferred(str(key))


# A reference that bash expands inside each kind of quotes; single quotes are closed around it.
_QUOTED = {"'": "'\"${{{}}}\"'", '"': "${{{}}}", "": '"${{{}}}"'}


def _quote_at(text: str, position: int) -> str:
    """Return the quote character that is open in bash at a position; "" outside of quotes."""
    quote, index = "", 0
    while index < position:
        char = text[index]
        if char == "\\" and quote != "'":
            index += 1
        elif quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char == "#" and (index == 0 or text[index - 1].isspace()):
            end = text.find("\n", index)
            if end < 0 or end >= position:
                break
            index = end
        index += 1
    return quote
