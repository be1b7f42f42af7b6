"""Which values are secrets, by their names: they are taken from the environment and never written or shown."""

import re
from collections.abc import Iterable

_SECRET = re.compile(r"(_KEY|_TOKEN|_SECRET|PASSWORD|PASSWD)$", re.IGNORECASE)
# Native arguments; others whose names end so are words of a tokenizer (pad_token).
_ARGUMENTS = frozenset({"hub_token", "hf_token", "api_key", "access_token", "wandb_api_key", "swanlab_token"})
_OVERRIDE = re.compile(r"(\+*backend\.(env|args)\.([^=]+)=)(.+)", re.DOTALL)
HIDDEN = "…"


def is_secret(name: str) -> bool:
    """Tell whether a variable's value is a secret."""
    return _SECRET.search(name) is not None


def is_secret_argument(name: str) -> bool:
    """Tell whether a native argument's value is a secret."""
    return name.replace("-", "_").lower() in _ARGUMENTS


def without_secrets(words: Iterable[str]) -> list[str]:
    """Return the words of a command line with the values of secrets hidden."""
    return [_hidden(word) for word in words]


def _hidden(word: str) -> str:
    found = _OVERRIDE.fullmatch(word)
    if found is None:
        return word
    secret = is_secret(found[3]) if found[2] == "env" else is_secret_argument(found[3])
    return f"{found[1]}{HIDDEN}" if secret else word
