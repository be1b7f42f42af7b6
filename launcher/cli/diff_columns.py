"""Columns of `launch diff`: each job, file or recipe named on the command line, on its backend."""

import argparse
import dataclasses
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from launcher.cli.also_refused import error_rules, refused_by
from launcher.cli.options import composed_of
from launcher.cli.refusal import WrongUse
from launcher.compose import ComposeError
from launcher.compose.errors import Mistake
from launcher.importing.imported import Imported
from launcher.importing.job_file import job_yaml
from launcher.importing.judge import judge_existing
from launcher.importing.read_command import ImportOptions
from launcher.importing.read_file import job_group, read_file
from launcher.importing.side_by_side import Side, side_of
from launcher.job import Job, with_values
from launcher.job.secret import without_secrets
from launcher.mapping.backend import Backend, UnknownBackend, UnknownVersion, backend_names, get_backend
from launcher.nearest import nearest
from launcher.plan.shell import quote
from launcher.records import dataclass
from launcher.terminal import counted, machines

_WHOLE = re.compile(r"\+?(?:job|recipe)=(?P<name>.+)")
Target = tuple[Backend, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """The arguments of `launch diff`, by kind.

    Attributes:
        jobs: files, and choices of whole jobs (`+job=x.yaml`).
        common: overrides for all of them.
        targets: backends and versions that are named.
    """

    jobs: tuple[str, ...]
    common: tuple[str, ...]
    targets: tuple[Target, ...]


def sorted_words(words: Sequence[str], backends: str | None) -> Words:
    """Separate files and whole jobs from overrides.

    Raises:
        WrongUse: there are not two things to compare, or a name is unknown.
    """
    jobs = tuple(word for word in words if _WHOLE.fullmatch(word) or _is_file(word))
    common = tuple(word for word in words if word not in jobs)
    missing = next((word for word in common if "=" not in word), None)
    if missing is not None:
        raise _not_there(missing)
    _refuse_repeated(common)
    targets = tuple(_target(text.strip()) for text in backends.split(",")) if backends is not None else ()
    if len(jobs) < 2 and len(targets) < 2:
        works = ("launch diff old.sh new.sh", "launch diff +recipe=NAME --backends A,B")
        raise WrongUse("two files or jobs, or two backends, are needed", *works)
    if len(jobs) > 1 and len(targets) not in (0, 1, len(jobs)):
        raise WrongUse(f"{len(jobs)} jobs need one backend, or one for each; --backends has {backends}")
    return Words(jobs=jobs, common=common, targets=targets)


def _not_there(word: str) -> WrongUse:
    if word.partition("@")[0] in backend_names():
        return WrongUse(f"{word} is a backend, not a file or a job", "launch diff +recipe=NAME --backends A,B")
    path = Path(word)
    try:
        names = [each.name for each in path.parent.iterdir() if each.is_file()]
    except OSError:
        names = []
    near = [str(path.parent / name) for name in nearest(path.name, names)]
    return WrongUse(f"{word} does not exist", *(near or ("launch diff old.sh new.sh parallel.tp=2",)))


def _refuse_repeated(common: Sequence[str]) -> None:
    """Refuse two values of one field: written after each job, they look like one for each, but apply to all."""
    values: dict[str, list[str]] = {}
    for word in common:
        key, _, value = word.lstrip("+~").partition("=")
        values.setdefault(key, []).append(value)
    for key, given in values.items():
        if len(set(given)) < 2:
            continue
        names = [value for value in given if key == "backend" and value in backend_names()]
        works = [f"--backends {','.join(dict.fromkeys(names))}"] if len(names) == len(given) else []
        words = " ".join(without_secrets([f"{key}={value}" for value in given]))
        raise WrongUse(f"{words}: overrides apply to every side; {key} takes one value", *works)


def _is_file(word: str) -> bool:
    return not word.startswith(("+", "~")) and os.path.isfile(word)


def _target(text: str) -> Target:
    name, _, version = text.partition("@")
    try:
        backend = get_backend(name)
        return backend, backend.version(version or None)
    except UnknownBackend:
        raise WrongUse(f"no backend {name!r}", *backend_names()) from None
    except UnknownVersion as error:
        raise WrongUse(str(error), *(f"{name}@{known}" for known in get_backend(name).versions)) from None


def sides(words: Words, options: argparse.Namespace) -> list[Side]:
    """Return one side for each job, or for each backend of a single job.

    Raises:
        ImportRefused: a file cannot be read.
        ComposeError: overrides or a job file are wrong.
    """
    if len(words.jobs) < 2:
        one = next(iter(words.jobs), "")
        read = _read(one, words.common, options)
        return [_side(read, f"{backend.name} {version}", one, (backend, version)) for backend, version in words.targets]
    targets: Sequence[Target | None] = words.targets or (None,)
    targets = targets if len(targets) > 1 else [targets[0]] * len(words.jobs)
    found = [_read(word, words.common, options) for word in words.jobs]
    return [
        _side(read, label, f"{number} {label}", target)
        for number, (read, label, target) in enumerate(zip(found, _labels(words.jobs), targets, strict=True))
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    word: str
    job: Job
    imported: Imported | None = None
    changed: bool = False


def _read(word: str, common: Sequence[str], options: argparse.Namespace) -> _Read:
    if not word or _WHOLE.fullmatch(word):
        return _Read(word=word, job=composed_of([word, *common] if word else common, options.config_dir))
    if (group := job_group(word)) is not None:
        return _Read(word=word, job=composed_of([f"+{group}={word}", *common], options.config_dir))
    variables = dict(pair.split("=", 1) for pair in options.set)
    imported = read_file(word, ImportOptions(partial=options.partial), variables=variables)[0]
    with tempfile.TemporaryDirectory(prefix="launch-diff-") as folder:
        path = Path(folder) / f"{imported.job.name or 'job'}.yaml"
        path.write_text(job_yaml(imported, word, with_version=True), encoding="utf-8")
        try:
            job = composed_of([f"+job={path}", *common], options.config_dir)
        except ComposeError as error:
            raise ComposeError([_without(mistake, path, word) for mistake in error.mistakes]) from None
    return _Read(word=word, job=job, imported=imported, changed=bool(common))


def _without(mistake: Mistake, path: Path, word: str) -> Mistake:
    """Return the mistake with the user's file in place of the temporary one made from it."""
    where = word if mistake.where.startswith(str(path)) else mistake.where
    return dataclasses.replace(mistake, where=where, what=mistake.what.replace(str(path), word))


def _side(read: _Read, label: str, job_id: str, target: Target | None) -> Side:
    side = side_of(read.job, label, job_id=job_id, target=target)
    return dataclasses.replace(side, about=_about(label, read, side), refused_by=tuple(_refused_by(read, side)))


def _refused_by(read: _Read, side: Side) -> list[str]:
    """Return the rules with which `launch check` refuses the file as it is, or the job on the side's backend."""
    imported = read.imported
    if imported is not None and not read.changed and side.kind == (imported.backend, imported.version):
        return error_rules(judge_existing(imported, fixes=False).findings)
    backend, version = side.kind
    return refused_by(with_values(read.job, {"backend.name": backend, "backend.version": version}))


def _about(label: str, read: _Read, side: Side) -> str:
    backend, version, job = side.meaning.backend, side.meaning.version, side.meaning.job
    size = machines(job.cluster.nodes, job.cluster.devices_per_node)
    imported = read.imported
    program = f"{imported.program or 'arguments'}, " if imported is not None else ""
    remarks = len(imported.warnings) + len(imported.problems) if imported is not None else 0
    more = f"; {counted(remarks, 'remark')}: launch import {quote(read.word)}" if remarks else ""
    return f"{label}: {program}{backend.title} {version}, {size}{more}"


def _labels(words: Sequence[str]) -> list[str]:
    """Return short labels: file names, or whole paths where the file names are not distinct."""
    names = [Path(match["name"] if (match := _WHOLE.fullmatch(word)) else word) for word in words]
    short = [path.name for path in names]
    chosen = short if len(set(short)) == len(set(names)) else [str(path) for path in names]
    return list(_numbered(chosen))


def _numbered(labels: Sequence[str]) -> Iterator[str]:
    for index, label in enumerate(labels):
        earlier = labels[:index].count(label)
        yield f"{label} ({earlier + 1})" if earlier else label
