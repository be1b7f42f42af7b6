"""One record for our verdict beside a real validator's, and one way to ask such a validator for thousands."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("same", "missed", "later", "unexplained", "machine")
WRONG = ("missed", "unexplained")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Verdicts on one job, file or command line.

    Attributes:
        ours: what refuses it here: ids of rules, names of arguments.
        real: message of the real validator; None: accepted.
        later: rules whose fault the real validator does not see, and where it shows or why they are stricter.
        machine: parts of what the real validator says where the machine decides, not the job.
        about: what was drawn, to see it where a test fails.
    """

    name: str
    ours: tuple[str, ...]
    real: str | None
    later: Mapping[str, str] = field(default_factory=dict, repr=False)
    machine: tuple[str, ...] = field(default=(), repr=False)
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """Return `same`; `missed` or `machine` where only the real one refuses; else `later` or `unexplained`."""
        if bool(self.ours) == (self.real is not None):
            return "same"
        if self.real is not None:
            return "machine" if any(text in self.real for text in self.machine) else "missed"
        return "later" if set(self.ours) <= set(self.later) else "unexplained"


@dataclass(frozen=True, slots=True, kw_only=True)
class Validator:
    """A program that reads cases as JSON on its standard input and answers each with a line of JSON.

    Attributes:
        command: argument list of the program.
        env: environment variables beside this process's own.
        as_list: the cases are one JSON list, not one line each.
        title: validator and version, shown with its progress; answers are kept under it.
        cache: file that keeps answers between runs; None: none is kept.
        workers: number of processes.
    """

    command: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path = ROOT
    as_list: bool = False
    title: str = ""
    cache: Path | None = None
    workers: int = 1
    timeout: float = 7200


def ask(validator: Validator, cases: Sequence[Any]) -> list[Any]:
    """Return the validator's answers to the cases, in their order; each one is kept as soon as it is there.

    Raises:
        RuntimeError: a process ended before it had answered everything; carries its last words.
    """
    known = _Answers(validator)
    keys = [known.key(case) for case in cases]
    waiting = {key: case for key, case in zip(keys, cases, strict=True) if key not in known.by_key}
    known.total = len(waiting)
    items = list(waiting.items())
    count = max(1, min(validator.workers, len(items)))
    # Neighbours go to one process: it may keep what they have in common.
    parts = [items[len(items) * at // count : len(items) * (at + 1) // count] for at in range(count)]
    threads = [threading.Thread(target=known.run, args=(part,)) for part in parts if part]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if known.failures:
        raise RuntimeError(known.failures[0])
    return [known.by_key[key] for key in keys]


class _Answers:
    """Answers by case, in memory and in the validator's file."""

    def __init__(self, validator: Validator) -> None:
        self.validator = validator
        self.total = self.done = 0
        self.failures: list[str] = []
        self.lock = threading.Lock()
        self.by_key: dict[str, Any] = {}
        if validator.cache is not None and validator.cache.exists():
            lines = validator.cache.read_text(encoding="utf-8").splitlines()
            self.by_key = {entry["key"]: entry["answer"] for entry in map(json.loads, lines)}

    def key(self, case: Any) -> str:
        """Return what a case is known by; another validator, version, environment or case has another key."""
        asked = [self.validator.title, sorted(self.validator.env.items()), case]
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:32]

    def run(self, items: Sequence[tuple[str, Any]]) -> None:
        """Ask one process about these cases."""
        cases = [case for _, case in items]
        text = json.dumps(cases) if self.validator.as_list else "".join(json.dumps(case) + "\n" for case in cases)
        child = subprocess.Popen(
            list(self.validator.command),
            cwd=self.validator.cwd,
            env={**os.environ, "OMP_NUM_THREADS": "1", **self.validator.env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        reported: list[str] = []
        listener = threading.Thread(target=_listen, args=(child.stderr, reported))
        listener.start()
        watch = threading.Timer(self.validator.timeout, child.kill)
        watch.start()
        child.stdin.write(text)
        child.stdin.close()
        for (key, _), line in zip(items, child.stdout, strict=False):
            self._keep(key, json.loads(line))
        child.stdout.read()
        code = child.wait()
        watch.cancel()
        listener.join()
        missing = [key for key, _ in items if key not in self.by_key]
        if missing:
            self.failures.append(f"exit code {code}, {len(missing)} without an answer: {''.join(reported)[-4000:]}")

    def _keep(self, key: str, answer: Any) -> None:
        with self.lock:
            self.by_key[key] = answer
            if self.validator.cache is not None:
                with self.validator.cache.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"key": key, "answer": answer}) + "\n")
            self.done += 1
            if self.validator.title and (self.done % 50 == 0 or self.done == self.total):
                print(f"{self.validator.title}: {self.done} of {self.total}", file=sys.stderr, flush=True)


def _listen(stream: IO[str], reported: list[str]) -> None:
    for line in stream:
        reported.append(line)
        del reported[:-100]
