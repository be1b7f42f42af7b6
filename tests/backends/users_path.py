"""Judges cases as users do: a file on disk and `launch check FILE --json`, its exit code and its JSON."""

import contextlib
import hashlib
import io
import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

from launcher.cli import main
from launcher.importing.job_file import job_tree
from launcher.job import Job
from launcher.job.migrations import JOB_FILES, versioned
from launcher.mapping.backend import get_backend
from launcher.rules.registry import RULES
from tests.backends.mutated import Line
from tests.backends.verdicts import ROOT

# What a search for fixes adds to a finding; a verdict does not depend on it.
_OTHER = "IMPORT-VERSION"
_FIX_KEYS = ("fix", "affects_training", "ask")
_PER_NODE = 8
_SECONDS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the command answers: its exit code and its findings."""

    code: int
    findings: tuple[Mapping[str, Any], ...]

    @property
    def errors(self) -> tuple[str, ...]:
        """Return the ids of the rules that refuse the case.

        IMPORT-VERSION is one: it says that the default version refuses the file, which is judged by another.
        """
        found = {finding["rule"] for finding in self.findings if finding["severity"] == "error"}
        assert bool(found) == (self.code != 0), (self.code, self.findings)
        return tuple(sorted(found | ({_OTHER} & {finding["rule"] for finding in self.findings})))


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A command that was judged, the folder that it was typed in, and the answer."""

    words: tuple[str, ...]
    answer: Answer


@dataclass(slots=True, kw_only=True)
class UsersPath:
    """Writes each case as a file and judges it by the command's `main(argv)`, in this process.

    Attributes:
        folder: where the files are written.
        asked: every command with its answer, in order.
    """

    folder: Path
    asked: list[Asked] = field(default_factory=list)

    def check(self, *words: str) -> Answer:
        """Judge by `launch check WORDS --json`; fixes are not searched for, which takes ten times as long."""
        out = io.StringIO()
        with (
            mock.patch("launcher.pipeline.with_fixes", lambda findings, _variants: findings),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            code = main(["check", *words, "--json"])
        answer = _answer(code, out.getvalue())
        self.asked.append(Asked(words=words, answer=answer))
        return answer

    def script(self, text: str, *overrides: str) -> Answer:
        """Judge a script."""
        return self.check(str(self.file(text, ".sh")), *overrides)

    def job(self, job: Job) -> Answer:
        """Judge a job file."""
        return self.check(f"+job={self.job_file(job)}")

    def job_file(self, job: Job) -> Path:
        """Write a job as a file for `+job=`."""
        choice = versioned({"defaults": [{"override /backend": job.backend.name}]}, JOB_FILES)
        body = yaml.safe_dump(choice, sort_keys=False) + yaml.safe_dump(job_tree(job), sort_keys=False)
        return self.file(body, ".yaml")

    def file(self, text: str, suffix: str) -> Path:
        """Write a file, named by its content."""
        folder = self.folder / hashlib.sha256(text.encode()).hexdigest()[:16]
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"train{suffix}"
        path.write_text(text, encoding="utf-8")
        return path

    def differing(self, count: int) -> Iterator[str]:
        """Yield what the installed command answers otherwise, of `count` of the commands, spread evenly."""
        program = shutil.which("launch")
        assert program, "launch is not installed"
        chosen = self.asked[:: max(1, len(self.asked) // count)][:count] if count else []
        for each in chosen:
            done = subprocess.run(
                [program, "check", *each.words, "--json"],
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=False,
            )
            if _answer(done.returncode, done.stdout) != each.answer:
                yield f"launch check {shlex.join(each.words)}: exit code {done.returncode}, here {each.answer.code}"


def nodes_of(world_size: int) -> tuple[int, int]:
    """Return nodes and devices of each with which a user starts so many ranks."""
    per_node = max(size for size in range(1, _PER_NODE + 1) if world_size % size == 0)
    return world_size // per_node, per_node


def torchrun_script(line: Line) -> str:
    """Return the script that starts a command line of Megatron's programs."""
    nodes, per_node = nodes_of(line.world_size)
    program = line.program or ("pretrain_gpt.py",)
    place = ["--nnodes", nodes, "--node_rank", 0, "--master_addr", "10.0.0.1", "--master_port", 6000]
    start = ["torchrun", "--nproc_per_node", per_node, *(place if nodes > 1 else ())]
    return _script(line.env, [*start, *program, *line.argv])


def swift_script(line: Line) -> str:
    """Return the script that starts a command line of Megatron-SWIFT."""
    nodes, per_node = nodes_of(line.world_size)
    return _script({**line.env, "NNODES": str(nodes), "NPROC_PER_NODE": str(per_node)}, [*line.program, *line.argv])


def msrun_script(file: Path, world_size: int) -> str:
    """Return the script that starts MindFormers with a YAML file."""
    _, per_node = nodes_of(world_size)
    place = [f"--worker_num={world_size}", f"--local_worker_num={per_node}", "--master_addr=10.0.0.1"]
    return _script({}, ["msrun", *place, "--node_rank=0", "run_mindformer.py", "--config", file])


def version_words(backend: str, version: str) -> tuple[str, ...]:
    """Return what a user of another version than the default one adds."""
    return () if version == get_backend(backend).default_version else (f"backend.version={version}",)


def reasons(ids: Sequence[str], version: str, later: Mapping[str, str]) -> dict[str, str]:
    """Return why rules refuse what the version accepts: where it shows later, or that the rule is stricter."""
    stricter = {
        id_: RULES[id_].reason or "stricter than the version, which rules.strict=upstream leaves to it"
        for id_ in ids
        if id_ in RULES and RULES[id_].is_stricter(version)
    }
    return {**stricter, **{id_: later[id_] for id_ in ids if id_ in later}}


def _script(env: Mapping[str, Any], words: Sequence[object]) -> str:
    exported = "".join(f"export {name}={shlex.quote(str(value))}\n" for name, value in env.items())
    return f"#!/bin/bash\n{exported}{shlex.join(map(str, words))}\n"


def _answer(code: int, text: str) -> Answer:
    findings = json.loads(text)["findings"]
    plain = ({key: value for key, value in each.items() if key not in _FIX_KEYS} for each in findings)
    return Answer(code=code, findings=tuple(plain))
