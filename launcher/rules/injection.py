"""Refuses text that bash or a backend's parser would read as a command or an option, not as a value.

Quoting handles nearly all text; these rules refuse what quoting cannot. They are `mandatory`, since the rendering of
scripts relies on them.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache
from operator import attrgetter

from launcher.catalogue.command_line import can_be_written
from launcher.job import Job, Value, fields, value_at
from launcher.rules.registry import RuleContext, Violation, rule
from launcher.syntax import BASH_VARIABLES, is_text, is_variable, shown, texts_of

# One line each: used in batch script headers, in program options, in names. `setup` is bash, and an annotation of
# Kubernetes any text.
_ONE_LINE = ("name", "output_dir", "cluster.")
_ANY_LINES = ("cluster.setup", "cluster.annotations")
_SIMPLE = re.compile(r"[\w./:@%+=,-]+")
# One part of a dotted path.
_PART = re.compile(r"[\w%-]+")
_PATHS = ("path", "paths", "load", "save", "dir", "file")


@rule(
    "TEXT-CHARACTERS",
    source="POSIX execve, UTF-8; bash(1), sbatch(1): one option a line",
    reads="job.*",
    mandatory=True,
)
def text_can_be_written(context: RuleContext) -> Iterator[Violation]:
    """Text must not contain NUL or a lone surrogate; names and `cluster` fields are one printable line each."""
    paths, values = _text_fields()
    for path, value in zip(paths, values(context.job), strict=True):
        if not value or (isinstance(value, str) and value.isprintable()):
            continue
        for text in texts_of(value):
            if not is_text(text):
                yield Violation(
                    message=f"{path} {shown(text)} is not valid UTF-8 text (NUL, or an invalid byte)",
                    fields=(path,),
                )
            elif not text.isprintable() and _is_one_line(path):
                yield Violation(
                    message=f"{path} {shown(text)} contains a line break or another control character, but must be "
                    "one line",
                    fields=(path,),
                    works=_before(path, value),
                )


@cache
def _text_fields() -> tuple[tuple[str, ...], Callable[[Job], tuple[Value, ...]]]:
    """Return the fields that hold text, also in lists and mappings, and the function that gives their values."""
    paths = tuple(path for path, info in fields().items() if "str" in str(info.type) or "Mapping" in str(info.type))
    return paths, attrgetter(*paths)


def _is_one_line(path: str) -> bool:
    return path.startswith(_ONE_LINE) and path not in _ANY_LINES


def _before(path: str, value: Value) -> tuple[str, ...]:
    """Return the override with the text up to its first control character, where that needs no quotes."""
    if not isinstance(value, str):
        return ()
    rest = next((value[:index] for index, char in enumerate(value) if not char.isprintable()), value).strip()
    return (f"{path}={rest}",) if _SIMPLE.fullmatch(rest) else ()


@rule("ENV-NAME", source="POSIX 2017, 3.235 Name; bash(1), Shell Variables", reads="job.backend.env", mandatory=True)
def variables_have_names(context: RuleContext) -> Iterator[Violation]:
    """A variable's name consists of letters, digits and _, and must not be one that bash sets itself."""
    for name in context.job.backend.env:
        if is_variable(name):
            continue
        plain = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")
        if name in BASH_VARIABLES:
            why = "is set by bash itself: a script cannot give it a value"
        elif name.startswith("BASH_FUNC_"):
            why = "is an exported bash function, not a variable"
        else:
            near = f"; did you mean {plain}?" if plain and is_variable(plain) else ""
            why = f"is not a variable name (letters, digits and _, not beginning with a digit){near}"
        field = f"backend.env.{name}" if _PART.fullmatch(name) else "backend.env"
        yield Violation(message=f"backend.env: {shown(name)} {why}", fields=(field,))


@rule(
    "ARG-DASH", source="argparse.ArgumentParser._parse_optional: an argument that begins with - is an option", reads="*"
)
def values_are_no_options(context: RuleContext) -> Iterator[Violation]:
    """A value that begins with - is written --name=value; among several values of one argument that is not possible."""
    if context.as_written or context.catalogue is None or context.catalogue.style not in ("hf", "argparse"):
        return
    for flag, value in context.values.items():
        several = isinstance(value, (tuple, list))
        if not several and value != "--":
            continue
        texts = [str(item) for item in value] if several else [value]
        if texts and not can_be_written(texts):
            wrong = next(text for text in texts if not can_be_written([text]) or text.startswith("-"))
            named = context.fields_of((flag,))
            path = next(iter(named), "").rpartition(".")[2]
            hint = f"; a relative path can be written ./{wrong}" if path in _PATHS else ""
            yield Violation(
                message=f"{flag}: {shown(wrong)}{' among several values' if len(texts) > 1 else ''} would be read as "
                f"an option by the backend's parser{hint}",
                flags=(flag,),
                works=_with_dot(context.job, named[0], path) if hint and named else (),
            )


def _with_dot(job: Job, field: str, leaf: str) -> tuple[str, ...]:
    value = value_at(job, field) if field in fields() else None
    if not isinstance(value, tuple) or not all(isinstance(item, str) and _SIMPLE.fullmatch(item) for item in value):
        return ()
    return (f"{field}=[{','.join(f'./{item}' if item.startswith('-') else item for item in value)}]",)


@rule(
    "PATH-DASH",
    source="getopt(3), Python: an argument that begins with - is an option",
    reads="job.cluster.python job.cluster.host_file job.output_dir",
    mandatory=True,
)
def paths_are_no_options(context: RuleContext) -> Iterator[Violation]:
    """A folder or program that the launcher's own commands name must not begin with -."""
    for path in ("output_dir", "cluster.python", "cluster.host_file"):
        text = value_at(context.job, path)
        if text is None or not text.startswith("-"):
            continue
        works = (f"{path}=./{text}",) if _SIMPLE.fullmatch(text) else ()
        yield Violation(message=f"{path} {shown(text)} would be read as an option", fields=(path,), works=works)
    python = context.job.cluster.python
    if python is not None and ":" in python.rpartition("/")[0]:
        yield Violation(
            message=f"cluster.python {shown(python)}: its folder is added to PATH, where a colon separates folders",
            fields=("cluster.python",),
        )
