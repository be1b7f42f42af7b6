"""Which values are secrets, by their names: they are taken from the environment and never written or shown."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from launcher.job.schema import field_paths

_SECRET = re.compile(r"(^|_)(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)
# Variables whose names end so and that hold words of a vocabulary (of a reranker).
_WORDS = frozenset({"GENERATIVE_RERANKER_POSITIVE_TOKEN", "GENERATIVE_RERANKER_NEGATIVE_TOKEN"})
# Native arguments by the last part of their names. Others that end so are words of a tokenizer (pad_token), names of
# columns (teacher_tag_key) or numbers.
_ARGUMENTS = frozenset(
    {
        "token",  # of Hugging Face's loaders (model.model_config.token)
        "hub_token",
        "hf_token",
        "hf_hub_token",
        "ms_hub_token",
        "om_hub_token",
        "ms_token",
        "access_token",
        "auth_token",
        "api_token",
        "wandb_token",
        "swanlab_token",
        "api_key",
        "secret_key",
        "access_key",
        "wandb_api_key",
        "wandb_key",
        "swanlab_api_key",
        "openai_api_key",
        "vllm_api_key",
        "enc_key",  # of encrypted checkpoints (callbacks.CheckpointMonitor.enc_key)
        "dec_key",
        "secret",
        "password",
        "passwd",
    }
)
_OVERRIDE = re.compile(r"([~+]*(?:backend|imported)\.(env|args)\.([^=]+)=)(.+)", re.DOTALL)
# Mappings, also in a list or one of several, and not a reference to a variable.
_MAPPING = re.compile(r"([~+]*(?:backend|imported)(?:\.(?:env|args))?=).*(?<!\$)\{.*", re.DOTALL)
_KEYS = re.compile(r"([\w.-]+)['\"]?\s*:")
# A word that is no override of a known kind, and the last name before its value.
_LOOSE = re.compile(r"([~+]*(?:[^=]*[^\w=])?(\w+)\s*=)(.+)", re.DOTALL)
_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)\}?")
HIDDEN = "…"


def is_secret(name: str) -> bool:
    """Tell whether a variable's value is a secret."""
    return _SECRET.search(name) is not None and name not in _WORDS


def is_secret_argument(name: str) -> bool:
    """Tell whether a native argument's value is a secret; a dotted path is judged by its last part."""
    return _leaf(name) in _ARGUMENTS


def _leaf(name: str) -> str:
    return name.rpartition(".")[2].replace("-", "_").lower()


def reference(name: str, value: Any = None) -> str:
    """Return the reference to the environment that stands for an argument's secret value.

    A value that is a variable already stays that variable, in capitals: plans refer to no others.
    """
    found = _VARIABLE.fullmatch(value) if isinstance(value, str) else None
    return f"${{{found[1].upper() if found is not None else _leaf(name).upper()}}}"


def by_reference(name: str, value: Any) -> Any:
    """Return an argument's value without secrets: references stand for them, also inside lists and mappings."""
    if value is None or value == "":
        return value
    if is_secret_argument(name) and isinstance(value, (str, int, float)) and not isinstance(value, bool):
        return reference(name, value)
    if isinstance(value, Mapping):
        return {key: by_reference(str(key), item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        plain = name if is_secret_argument(name) else ""
        return type(value)(by_reference(plain, item) for item in value)
    return value


def without_secrets(words: Iterable[str]) -> list[str]:
    """Return the words of a command line with the values of secrets hidden, and mappings that may hold one."""
    return [_hidden(word) for word in words]


def _hidden(word: str) -> str:
    whole = _MAPPING.fullmatch(word)
    if whole is not None:
        return f"{whole[1]}{HIDDEN}"
    found = _OVERRIDE.fullmatch(word)
    if found is None:
        loose = _LOOSE.fullmatch(word)
        mistyped = loose is not None and is_secret(loose[2]) and loose[1][:-1].lstrip("+~") not in field_paths()
        return f"{loose[1]}{HIDDEN}" if loose is not None and mistyped else word
    if found[2] == "env":
        secret = is_secret(found[3])
    else:
        keys = _KEYS.findall(found[4]) if "{" in found[4] else ()
        secret = any(map(is_secret_argument, (found[3], *keys)))
    return f"{found[1]}{HIDDEN}" if secret else word
