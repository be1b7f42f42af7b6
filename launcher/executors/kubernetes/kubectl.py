"""Calls kubectl with the user's credentials; its messages are passed on, of bounded size and without control codes."""

import contextlib
import json
import re
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from launcher.executors.kubernetes.kinds import KINDS
from launcher.records import dataclass

_SECONDS = 60
# Part of kubectl's message for a missing object.
_NOT_FOUND = "(NotFound)"
_WARNING = "Warning: "
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
# 10,000 pods are about 100 MB of JSON.
_MOST_BYTES = 512 * 2**20
_MOST_ERRORS = 2**16
_LONGEST = 600


class Refused(Exception):
    """kubectl failed; the message is kubectl's."""

    @property
    def is_missing(self) -> bool:
        """Whether the object does not exist."""
        return _NOT_FOUND in str(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Output of kubectl, and the warnings of the API server (those of admission, deprecated fields)."""

    data: bytes
    warnings: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The output as text; what is not UTF-8 is replaced."""
        return self.data.decode("utf-8", "replace")


def kubectl(place: Mapping[str, Any], *words: str, text: str | None = None, seconds: float = _SECONDS) -> str:
    """Run kubectl in the context and namespace of a run and return its output.

    Args:
        place: `context` and `namespace`, if they differ from those of the kubeconfig.
        text: standard input.

    Raises:
        Refused: with kubectl's message, or the reason why there is none.
    """
    return ask(place, *words, text=text, seconds=seconds).text


def ask(place: Mapping[str, Any], *words: str, text: str | None = None, seconds: float = _SECONDS) -> Answer:
    """Run kubectl like `kubectl` does and return its output with the warnings of the API server.

    Raises:
        Refused: with kubectl's message, or the reason why there is none.
    """
    command = ["kubectl", *flags(place), *words]
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
        except FileNotFoundError:
            raise Refused("there is no kubectl on the PATH: https://kubernetes.io/docs/tasks/tools") from None
        except OSError as error:
            raise Refused(f"kubectl cannot be started: {error.strerror or error}") from None
        data = _output(process, (text or "").encode(), seconds)
        errors.seek(0)
        said = errors.read(_MOST_ERRORS).decode("utf-8", "replace").splitlines()
    warnings = [line.removeprefix(_WARNING) for line in said if line.startswith(_WARNING)]
    if process.returncode:
        lines = [line for line in said if line.strip() and not line.startswith(_WARNING)]
        message = " · ".join(
            filter(None, (tidy(line) for line in lines or data[:_MOST_ERRORS].decode(errors="replace").splitlines()))
        )
        raise Refused(message or f"kubectl: exit code {process.returncode}")
    return Answer(data=data, warnings=tuple(dict.fromkeys(tidy(line) for line in warnings)))


def _output(process: "subprocess.Popen[bytes]", text: bytes, seconds: float) -> bytes:
    """Return the output of kubectl, which is ended when it takes too long or writes too much."""
    assert process.stdin is not None
    assert process.stdout is not None
    overdue = threading.Event()

    def end() -> None:
        overdue.set()
        process.kill()

    timer = threading.Timer(seconds, end)
    timer.start()
    with contextlib.suppress(BrokenPipeError), process.stdin:  # it has ended: its exit code and message count
        process.stdin.write(text)
    try:
        with process.stdout:
            data = process.stdout.read(_MOST_BYTES + 1)
            if len(data) > _MOST_BYTES:
                process.kill()
        process.wait()
    finally:
        timer.cancel()
        if process.poll() is None:
            process.kill()
            process.wait()
    if overdue.is_set():
        raise Refused(f"kubectl did not respond within {seconds:.0f} s")
    if len(data) > _MOST_BYTES:
        raise Refused(f"kubectl wrote more than {_MOST_BYTES >> 20} MiB")
    return data


def resource_of(handle: Mapping[str, Any]) -> str:
    """Return the resource of a run's job object, for kubectl.

    Raises:
        Refused: the handle, which is read from a folder, is none of a job in Kubernetes.
    """
    kind, name = handle.get("kind"), handle.get("name")
    if not isinstance(kind, str) or kind not in KINDS or not isinstance(name, str) or not _NAME.fullmatch(name):
        raise Refused(f"{tidy(dict(handle), 200)} names no job in Kubernetes")
    return KINDS[kind].resource


def tidy(text: object, longest: int = _LONGEST) -> str:
    """Return a message of the cluster on one line, without control characters, of bounded length.

    Messages quote what users and images wrote; they reach terminals, files and JSON.
    """
    words = " ".join("".join(char if char.isprintable() else " " for char in str(text)[: 4 * longest]).split())
    return words if len(words) <= longest else f"{words[: longest - 1]}…"


def mapping(value: object) -> Mapping[str, Any]:
    """Return a part of an answer that is a map; an empty one where it is not."""
    return value if isinstance(value, Mapping) else {}


def mappings(value: object) -> list[Mapping[str, Any]]:
    """Return the maps of a part of an answer that is a list of them; none where it is not."""
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def flags(place: Mapping[str, Any]) -> list[str]:
    """Return kubectl's options for context and namespace."""
    return [f"--{name}={place[name]}" for name in ("context", "namespace") if place.get(name)]


def documents(text: str) -> list[dict[str, Any]]:
    """Return the objects of `-o json`: a list, or one object after another.

    Raises:
        ValueError: the text is something else.
    """
    found: list[dict[str, Any]] = []
    decoder, rest = json.JSONDecoder(), text.lstrip()
    while rest:
        try:
            tree, end = decoder.raw_decode(rest)
        except RecursionError:
            raise ValueError("objects are nested too deeply") from None
        is_list = isinstance(tree, dict) and str(tree.get("kind")).endswith("List")
        trees = tree.get("items") if is_list else [tree]
        found += [each for each in trees if isinstance(each, dict)] if isinstance(trees, list) else []
        rest = rest[end:].lstrip()
    return found


def items(place: Mapping[str, Any], *words: str) -> Sequence[dict[str, Any]]:
    """Return the items listed by `kubectl get WORDS -o json`.

    Raises:
        Refused: with kubectl's message.
    """
    text = kubectl(place, "get", *words, "-o", "json")
    try:
        return documents(text)
    except ValueError:
        raise Refused(f"unexpected output of kubectl: {tidy(text, 200)}") from None
