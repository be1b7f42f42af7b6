"""Names whose values are secrets: environment variables, native arguments, keys of YAML and JSON."""

import itertools
import re
from functools import cache
from typing import Literal

# `secret`: any value. `maybe`: only a value that looks random. `no`: the name is no evidence.
Sign = Literal["secret", "maybe", "no"]

_WORDS = r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+"
# Words that mark a secret anywhere in a name, also joined to another word (`pgpassword`).
_ALWAYS = ("password", "passwd", "passphrase", "secret", "apikey", "secretkey", "accesskey", "privatekey", "sshpass")
_ALWAYS_TOKENS = ("authtoken", "accesstoken", "apitoken", "hftoken", "hubtoken", "githubtoken", "gitlabtoken")
# Last words that mark a secret in names of several words (`GITHUB_PAT`; `PWD` alone is the working directory).
_LAST = frozenset(
    {"pwd", "pass", "pat", "credential", "credentials", "jwt", "authorization", "ak", "sk", "psk", "auth"}
)
_ALONE = frozenset({"token", "credentials", "jwt", "authorization"})
# Words before `key` or `token` that mark a credential.
_OPENS = frozenset(
    {
        *("access", "account", "admin", "api", "auth", "bearer", "client", "enc", "encryption", "dec", "decryption"),
        *("deploy", "hmac", "id", "license", "login", "personal", "private", "refresh", "secret", "service", "session"),
        *("shared", "sign", "signing", "ssh", "storage", "user", "webhook", "write", "read", "registry", "bot"),
        *("anthropic", "aws", "azure", "clearml", "cohere", "comet", "dashscope", "databricks", "deepseek", "docker"),
        *("gcp", "gemini", "gh", "git", "gitea", "gitee", "github", "gitlab", "google", "groq", "hf", "hub"),
        *("huggingface", "huggingfacehub", "kaggle", "mlflow", "modelscope", "ms", "neptune", "ngc", "npm", "nvidia"),
        *("obs", "om", "openai", "openmind", "oss", "pypi", "s3", "sentry", "slack", "swanlab", "telegram"),
        *("twine", "vllm", "wandb", "zhipu"),
    }
)
# Words before `token` or `key` that mark a vocabulary token, a number or a column name.
_VOCABULARY = frozenset(
    {
        *("pad", "padding", "bos", "eos", "eod", "eop", "eot", "sop", "unk", "sep", "cls", "mask", "gmask", "image"),
        *("img", "video", "audio", "vision", "fim", "prefix", "middle", "suffix", "special", "placeholder", "stop"),
        *("start", "end", "begin", "think", "positive", "negative", "boxed", "per", "max", "min", "num", "total"),
        *("next", "prev", "target", "mtp", "cut", "extra", "eom", "role", "turn", "query", "label", "tag"),
        *("dict", "sort", "primary", "foreign", "args", "linear", "text", "column", "group", "merge", "map", "json"),
    }
)
# Endings that are ignored: HF_TOKEN_2 is a token as well.
_TRIMMED = frozenset({"value", "old", "new", "prod", "dev", "test", "main", "backup", "b64", "base64"})
# Endings that mark a location, name or number instead of the secret: TOKEN_FILE, SECRET_NAME.
_ABOUT = frozenset(
    {
        *("file", "files", "path", "paths", "dir", "name", "names", "ref", "namespace", "mount", "arn", "version"),
        *("type", "length", "len", "size", "count", "num", "ids", "url", "host", "port", "ttl", "expiry", "format"),
        *("policy", "limit", "mode", "enabled", "required", "ratio", "dispatcher", "class", "loss"),
    }
)
_SUGGEST = ("token", "key", "secret", "pwd", "pass", "auth", "creds", "cred", "jwt", "cookie", "signature", "bearer")
_SUGGEST_WORDS = frozenset({"pat", "ak", "sk", "sas", "sig", "dsn", "webhook", "session", "license", "private"})


def is_secret(name: str) -> bool:
    """Return whether any value of this name is a secret."""
    return sign_of(name) == "secret"


@cache
def sign_of(name: str) -> Sign:
    """Return whether a name marks its value as a secret; a dotted path or a flag is judged by its last part."""
    last = name.rpartition(".")[2].strip("-_")
    words = [word.lower() for word in re.findall(_WORDS, last)]
    while len(words) > 1 and (words[-1].isdigit() or words[-1] in _TRIMMED):
        words.pop()
    if not words:
        return "no"
    if words[-1] in _ABOUT and words[-2:] != ["access", "id"]:
        return "no"
    # In upper case (an environment variable), key or token marks a secret unless the word before excludes it.
    variable = last.isupper()
    return "secret" if _names_secret(words, variable) else "maybe" if _may_name_secret(words) else "no"


def _names_secret(words: list[str], variable: bool) -> bool:
    if any(word.endswith(_ALWAYS) or word.endswith(_ALWAYS_TOKENS) for word in words):
        return True
    if any(pair in (("private", "key"), ("access", "key")) for pair in itertools.pairwise(words)):
        return True
    before, final = words[-2] if len(words) > 1 else "", words[-1]
    if final in _LAST and before:
        return variable or final not in ("ak", "sk", "pass", "auth") or before in _OPENS
    if not before and (final in _ALONE or (variable and final in ("ak", "sk"))):
        return True
    if (before, final) in (("connection", "string"), ("conn", "string")):
        return True
    if final in ("passwords", "secrets") or (final in ("keys", "tokens") and before in ("api", "access", "auth")):
        return True
    if final not in ("key", "token") or before in _VOCABULARY:
        return False
    return before in _OPENS or variable


def _may_name_secret(words: list[str]) -> bool:
    return any(word.endswith(_SUGGEST) for word in words) or not _SUGGEST_WORDS.isdisjoint(words) or words == ["wandb"]
