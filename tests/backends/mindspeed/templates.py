"""Processes in which MindSpeed-LLM is imported already, kept for the command lines under which it imports the same.

What MindSpeed patches at import depends on the command line; so every argument that is looked at meanwhile is noted,
and a process serves the command lines that agree in these. It answers from a fork, so that none sees another's state.
"""

import argparse
import importlib
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

_ABSENT = "not there"
_MOST = 24
_EXIT = "SystemExit"
STALE = "stale"
"""Answer of a process whose import looks at an argument again, later, that this command line gives another value."""


class Noting(argparse.Namespace):
    """A namespace of arguments that notes what is looked at, but not by the parser that fills it."""

    noted: ClassVar[dict[str, str]] = {}
    parsing: ClassVar[int] = 0

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_") or Noting.parsing:
            return super().__getattribute__(name)
        try:
            value = super().__getattribute__(name)
        except AttributeError:
            Noting.noted.setdefault(name, _ABSENT)
            raise
        Noting.noted.setdefault(name, repr(value))
        return value

    def __contains__(self, name: str) -> bool:
        return hasattr(self, name)


_PLAIN = argparse.Namespace
_PARSE = argparse.ArgumentParser.parse_known_args


def note_arguments() -> None:
    """Note what is looked at from now on in the arguments that are parsed from now on."""

    def parse_known_args(*given: Any, **named: Any) -> Any:
        Noting.parsing += 1
        try:
            return _PARSE(*given, **named)
        finally:
            Noting.parsing -= 1

    Noting.noted.clear()
    argparse.Namespace = Noting  # type: ignore[misc]
    argparse.ArgumentParser.parse_known_args = parse_known_args  # type: ignore[method-assign]


def note_no_more() -> None:
    """Leave arguments that are parsed from now on alone; those of the import are still watched."""
    Noting.noted.clear()
    argparse.Namespace = _PLAIN  # type: ignore[misc]
    argparse.ArgumentParser.parse_known_args = _PARSE  # type: ignore[method-assign]


def disagreeing(seen: Mapping[str, str]) -> bool:
    """Tell whether the import's arguments were looked at where a command line has other values."""
    return any(seen.get(name, _ABSENT) != value for name, value in Noting.noted.items())


class Template:
    """A process that has imported MindSpeed-LLM, and what the import looked at.

    Attributes:
        noted: the arguments that the import looked at, with their values.
        failed: the error of the import, where it failed: the verdict on every command line that agrees.
    """

    def __init__(self, case: Mapping[str, Any], serve: Callable[[Mapping[str, Any]], Any]) -> None:
        to_parent, to_child = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(to_parent[0])
            os.close(to_child[1])
            _Server(to_child[0], to_parent[1]).run(case, serve)
            os._exit(0)
        os.close(to_parent[1])
        os.close(to_child[0])
        self._answers = os.fdopen(to_parent[0], encoding="utf-8")
        self._requests = os.fdopen(to_child[1], "w", encoding="utf-8")
        first = json.loads(self._answers.readline() or '{"noted": {}, "failed": "process: ended without a word"}')
        self.noted: dict[str, str] = first["noted"]
        self.failed: str = first["failed"]

    def serves(self, seen: Mapping[str, str]) -> bool:
        """Tell whether the import would be the same under these arguments."""
        return all(seen.get(name, _ABSENT) == value for name, value in self.noted.items())

    def ask(self, request: Mapping[str, Any]) -> Any:
        """Return the answer of a fork of the process."""
        self._requests.write(json.dumps(request) + "\n")
        self._requests.flush()
        return json.loads(self._answers.readline() or '"process: ended without a word"')

    def close(self) -> None:
        """End the process."""
        # Processes that were started later hold the other ends of its pipes, too: closing them would say nothing.
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


class _Server:
    def __init__(self, requests: int, answers: int) -> None:
        self.requests = os.fdopen(requests, encoding="utf-8")
        self.answers = os.fdopen(answers, "w", encoding="utf-8")

    def run(self, case: Mapping[str, Any], serve: Callable[[Mapping[str, Any]], Any]) -> None:
        failed = str(serve({**case, "stage": "import"}) or "")
        self._say({"noted": dict(Noting.noted), "failed": failed})
        for line in self.requests:
            reader, writer = os.pipe()
            if os.fork() == 0:
                with os.fdopen(writer, "w", encoding="utf-8") as answer:
                    answer.write(json.dumps(serve(json.loads(line))))
                    answer.flush()
                os._exit(0)
            os.close(writer)
            with os.fdopen(reader, encoding="utf-8") as answer:
                reported = answer.read()
            os.wait()
            self._say(json.loads(reported) if reported else "process: ended without a word")

    def _say(self, what: Any) -> None:
        self.answers.write(json.dumps(what) + "\n")
        self.answers.flush()


def arguments_at_import(argv: list[str]) -> dict[str, str]:
    """Return what an import would see of a command line: every argument's value, as text."""
    sys.argv = argv
    vars(importlib.import_module("mindspeed.args_utils"))["_MINDSPEED_ARGS"] = None
    adaptor = importlib.import_module("mindspeed_llm.tasks.megatron_adaptor_v2").FeatureAdaptor
    return {name: repr(value) for name, value in vars(adaptor.get_mindspeed_llm_args()).items()}


class Templates:
    """The processes, the last used first."""

    def __init__(self, serve: Callable[[Mapping[str, Any]], Any]) -> None:
        self._serve = serve
        self._kept: list[Template] = []

    def verdict(self, case: Mapping[str, Any]) -> str:
        """Return the verdict on a command line, from a process that agrees with it or a new one."""
        seen = self._seen(case)
        if isinstance(seen, str):
            return seen
        found = next((each for each in self._kept if seen is not None and each.serves(seen)), None)
        answer = STALE
        if found is not None:
            self._kept.remove(found)
            self._kept.insert(0, found)
            answer = found.failed or str(found.ask({**case, "stage": "judge"}))
        if answer == STALE:
            new = Template(case, self._serve)
            answer = new.failed or str(new.ask({**case, "stage": "judge", "own": True}))
            if _EXIT in new.failed:  # a parser's answer, which depends on more than what the import looked at
                new.close()
            else:
                self._kept.insert(0, new)
        while len(self._kept) > _MOST:
            self._kept.pop().close()
        return answer

    def _seen(self, case: Mapping[str, Any]) -> dict[str, str] | str | None:
        """Return what an import would see; what its parser says against it; None where there is no process yet."""
        alive = next((each for each in self._kept if not each.failed), None)
        answer = alive.ask({**case, "stage": "look"}) if alive is not None else None
        return answer if isinstance(answer, (dict, str)) else None

    def close(self) -> None:
        """End all processes."""
        for each in self._kept:
            each.close()
