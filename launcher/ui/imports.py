"""Reading what a session uploads or pastes: the report of the import, its overrides, and a port; nothing is run."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from launcher.importing.imported import Imported
from launcher.importing.job_file import job_yaml
from launcher.importing.notes import ImportRefused, Note
from launcher.importing.port import Ported, ported
from launcher.importing.read_command import ImportOptions
from launcher.importing.read_file import read_file
from launcher.job import override_text
from launcher.ui.overrides_of import overrides_of
from launcher.ui.words import refused

Tree = dict[str, Any]


def read(file: str, name: str, backend: str | None) -> Tree:
    """Return the report on a script or configuration, and the job as overrides.

    Args:
        file: where it lies; `name` is shown instead.
        backend: backend of the script; None: recognised.
    """
    try:
        imported = read_file(file, ImportOptions(backend=backend, partial=True))[0]
    except ImportRefused as error:
        return {"refused": [_note(note, file, name) for note in error.notes]}
    return {
        "refused": [],
        "backend": imported.backend,
        "version": imported.version,
        "program": imported.program,
        "args": [
            {"flag": each.flag, "value": override_text(each.value), "fate": _fate(each.fields, each.implied)}
            | {"becomes": ", ".join(each.fields), "where": _place(each.where, file, name), "why": ""}
            for each in imported.mapped_args
        ],
        "notes": [_note(note, file, name) for note in (*imported.problems, *imported.warnings)],
        "findings": [],
        **_state(imported, name),
    }


def ported_to(file: str, name: str, backend: str | None, target: str, accept: Sequence[str] = ()) -> Tree:
    """Return the report on a script on another backend: every argument's place there, or why it is dropped."""
    tree = read(file, name, backend)
    if tree["refused"]:
        return tree
    imported = read_file(file, ImportOptions(backend=backend, partial=True))[0]
    found = ported(imported, target, accepted=accept)
    accounts = [
        {
            "flag": each.flag,
            "value": override_text(each.value),
            "fate": each.status,
            "becomes": ", ".join(each.target_flags),
            "where": _place(each.where, file, name),
            "why": "" if each.missing is None else each.missing.why,
        }
        for each in found.accounts
    ]
    moved = _ported_import(imported, found)
    return {
        **tree,
        "target": found.job.backend.name,
        "target_version": found.job.backend.version,
        "args": accounts,
        "notes": [*tree["notes"], *(str(note).replace(file, name) for note in found.notes)],
        "findings": [finding.as_tree() for finding in found.findings],
        **_state(moved, name),
    }


def _ported_import(imported: Imported, found: Ported) -> Imported:
    job = found.job
    return dataclasses.replace(
        imported, backend=job.backend.name or "", version=job.backend.version or "", job=job, exact={}
    )


def _state(imported: Imported, name: str) -> Tree:
    """Return the job as overrides, and what they cannot hold."""
    import yaml

    text = job_yaml(imported, name, with_version=True)
    tree = yaml.safe_load(text)
    assert isinstance(tree, Mapping)
    words = overrides_of(tree)
    lost = refused(words)
    bad = {each.word.partition("=")[0] for each in lost}
    return {
        "words": [word for word in words if word.partition("=")[0] not in bad],
        "lost": [f"{each.word}: {each.why}" for each in lost],
        "yaml": text,
    }


def _fate(fields: Sequence[str], implied: bool) -> str:
    return "field" if fields else "implied" if implied else "passed through"


def _place(where: str, file: str, name: str) -> str:
    return where.replace(file, name)


def _note(note: Note, file: str, name: str) -> str:
    return str(note).replace(file, name).replace(str(Path(file).parent), "")
