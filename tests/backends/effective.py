"""What a backend's real validation changes in the parsed arguments beside what our rules say, command line by line."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from launcher import api
from launcher.importing.judge import judge_existing
from launcher.importing.notes import ImportRefused
from launcher.job import Value
from launcher.mapping.backend import get_backend
from launcher.mapping.equivalence import canonical, default_of, stored
from tests.backends.mutated import Line
from tests.backends.verdicts import Validator, ask

KINDS = ("same", "missed", "wrong", "invented", "files")
# Where data have no path, MindSpeed-LLM 2.1.0 writes True, so that Megatron-LM asks no more (arguments.py:1280).
_PLACEHOLDERS = {("mindspeed", "2.1.0"): ("data_path",)}
# What files on the training machine decide, which no rule reads: whether --load has Hugging Face weights, which are
# then converted, and their family (convert_checkpoint.py:137, 154 @26.1.0).
_OF_FILES = {
    ("mindspeed", "26.1.0"): ("enable_hf2mg_convert", "enable_mg2hf_convert", "hf_cfg_dir", "model_type_hf"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """One destination of one accepted command line.

    Attributes:
        kind: one of `KINDS`: changed to the same value by both, only by the real validation, to another value, only
            by ours, or by the real validation from files that no rule reads.
        real, ours: the last value; None where it is not changed.
        rules: records that set it here.
    """

    dest: str
    kind: str
    line: Line = field(repr=False)
    real: Value = None
    ours: Value = None
    rules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One command line that the real validation accepts, with what changes, by destination."""

    line: Line
    real: Mapping[str, Sequence[Any]]
    found: tuple[Changed, ...]

    @property
    def rules(self) -> set[str]:
        """The records that set something."""
        return {rule for each in self.found for rule in each.rules}


def compare(backend: str, version: str, lines: Sequence[Line], program: Validator) -> Iterator[Compared]:
    """Yield each command line that upstream accepts and that can be read, with what changes."""
    cases = [{"argv": list(line.argv), "world_size": line.world_size, "env": dict(line.env)} for line in lines]
    for line, answer in zip(lines, ask(program, cases), strict=True):
        if answer["said"]:
            continue
        found = changed_by(line, answer["changed"], backend, version)
        if found is not None:
            yield found


def changed_by(line: Line, real: Mapping[str, Sequence[Any]], backend: str, version: str) -> Compared | None:
    """Return a command line's changes by the real validation and by ours; None where it cannot be read."""
    ours = changed_here(line, backend, version)
    if ours is None:
        return None
    catalogue = get_backend(backend).catalogue(version)
    typed = {dest: (before, _as_text(before, after)) for dest, (before, after) in real.items()}
    known = {
        dest: pair
        for dest, pair in typed.items()
        if catalogue.by_dest(dest) is not None
        and canonical(pair[0]) != canonical(pair[1])
        and dest not in _PLACEHOLDERS.get((backend, version), ())
    }
    found = []
    for dest in dict.fromkeys((*known, *ours)):
        after, (mine, rules) = known.get(dest, (None, None))[1], ours.get(dest, (None, ()))
        if dest not in ours:
            kind = "files" if dest in _OF_FILES.get((backend, version), ()) else "missed"
        elif dest not in known:
            kind = "invented"
        else:
            kind = "same" if canonical(after) == canonical(mine) else "wrong"
        found.append(Changed(dest=dest, kind=kind, line=line, real=after, ours=mine, rules=rules))
    return Compared(line=line, real=known, found=tuple(found))


def _as_text(before: Value, after: Value) -> Value:
    """Return a list that validation made of text as text again: that alone is no change."""
    if not isinstance(before, str) or not isinstance(after, list):
        return after
    if all(isinstance(item, float) for item in after) and after == [float(item) for item in before.split(",")]:
        return before  # 2 and 2.0 are one number
    return ",".join(map(str, after))


def changed_here(line: Line, backend: str, version: str) -> dict[str, tuple[Value, tuple[str, ...]]] | None:
    """Return by destination the value that our rules leave and the records that set it; None: it cannot be read."""
    words = [*line.program, *line.argv]
    try:
        read = api.import_argv(words, backend=backend, version=version, env=line.env, world_size=line.world_size)
    except ImportRefused:
        return None
    outcome = judge_existing(read, fixes=False)
    catalogue, effective = outcome.backend.catalogue(version), outcome.effective
    # Deprecated names count under the names that replaced them from the start; the real parser keeps both.
    before = stored({arg.flag: arg.value for arg in read.native}, catalogue)
    after = stored(effective.values, catalogue)
    rules: dict[str, list[str]] = {}
    for change in effective.changes:
        argument = catalogue.get(change.flag)
        rules.setdefault(argument.dest if argument else change.flag, []).append(change.rule)
    return {
        dest: (value, tuple(rules.get(dest, ())))
        for dest, value in after.items()
        if canonical(before.get(dest, default_of(dest, catalogue))) != canonical(value)
    }
