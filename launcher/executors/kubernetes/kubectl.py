"""Calls kubectl with the user's credentials; its error messages are passed through."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

_SECONDS = 60
# Part of kubectl's message for a missing object.
_NOT_FOUND = "(NotFound)"


class Refused(Exception):
    """kubectl failed; the message is kubectl's."""

    @property
    def is_missing(self) -> bool:
        """Whether the object does not exist."""
        return _NOT_FOUND in str(self)


def kubectl(place: Mapping[str, Any], *words: str, text: str | None = None, seconds: float = _SECONDS) -> str:
    """Run kubectl in the context and namespace of a run and return its output.

    Args:
        place: `context` and `namespace`, if they differ from those of the kubeconfig.
        text: standard input.

    Raises:
        Refused: with kubectl's message, or the reason why there is none.
    """
    command = ["kubectl", *flags(place), *words]
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=seconds, check=False)
    except FileNotFoundError:
        raise Refused("there is no kubectl on the PATH: https://kubernetes.io/docs/tasks/tools") from None
    except subprocess.TimeoutExpired:
        raise Refused(f"kubectl did not respond within {seconds:.0f} s") from None
    except OSError as error:
        raise Refused(f"kubectl cannot be started: {error.strerror or error}") from None
    if done.returncode:
        lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise Refused(" · ".join(lines) or f"kubectl: exit code {done.returncode}")
    return done.stdout


def flags(place: Mapping[str, Any]) -> list[str]:
    """Return kubectl's options for context and namespace."""
    return [f"--{name}={place[name]}" for name in ("context", "namespace") if place.get(name)]


def documents(text: str) -> list[dict[str, Any]]:
    """Return the objects of `-o json`: a list, or one object after another."""
    found: list[dict[str, Any]] = []
    decoder, rest = json.JSONDecoder(), text.lstrip()
    while rest:
        tree, end = decoder.raw_decode(rest)
        found += tree["items"] if tree.get("kind") == "List" or tree.get("kind", "").endswith("List") else [tree]
        rest = rest[end:].lstrip()
    return found


def items(place: Mapping[str, Any], *words: str) -> Sequence[dict[str, Any]]:
    """Return the items listed by `kubectl get WORDS -o json`.

    Raises:
        Refused: with kubectl's message.
    """
    return documents(kubectl(place, "get", *words, "-o", "json"))
