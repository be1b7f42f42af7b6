"""Configuration files named by a command (`PROGRAM x.yaml`, `SCRIPT --config x.yaml`), read as its arguments."""

import json
import os.path
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from launcher.budgets import BeyondBudget, check_yaml
from launcher.catalogue.catalogue import Catalogue
from launcher.importing.argv import Parsed, parse_argv
from launcher.importing.invocation import Invocation
from launcher.importing.notes import Note, refuse
from launcher.importing.reading import parse_mapping, read_text, repeated_keys, with_base
from launcher.importing.shell.files import candidates
from launcher.importing.shell.placeholders import shown
from launcher.importing.shell.state import Command
from launcher.importing.stored import arguments_of_stored
from launcher.job import Value
from launcher.mapping.backend import Entry, get_backend
from launcher.records import dataclass

_ENDINGS = (".yaml", ".yml", ".json")
# A number to its author, but a string in YAML 1.1, because it has no point or no sign.
_EXPONENT = re.compile(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The arguments of a command with its configuration files expanded.

    Attributes:
        argv: arguments of the command line, files replaced by their content.
        tree: nested configuration of a backend that is configured by YAML; None for the others.
        env: variables set by the file and not by the command.
    """

    argv: tuple[str, ...] = ()
    tree: Mapping[str, Any] | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    warnings: list[Note] = field(default_factory=list)

    def read(self, invocation: Invocation, catalogue: Catalogue, command: str | None) -> Parsed:
        """Return the arguments as a version's catalogue parses them."""
        if catalogue.style != "yaml":
            return parse_argv(self.argv, catalogue, command)
        entry = get_backend(catalogue.backend).entry
        return read_tree(self.tree or {}, self.argv, entry, catalogue)


def configuration(invocation: Invocation, folder: str | None) -> Configuration:
    """Return the command's arguments with its configuration files expanded.

    Args:
        folder: searched for files, besides the working directory.

    Raises:
        ImportRefused: the configuration cannot be read, and the backend has no other source of settings.
    """
    entry = get_backend(invocation.backends[0]).entry
    argv = invocation.argv
    warnings: list[Note] = []
    if entry.flatten is not None:
        return _nested(invocation, entry, folder)
    if entry.positional_config and argv and shown(argv[0]).endswith(_ENDINGS):
        tree = _load(argv[0], invocation, folder, warnings)
        env = tree.pop("ENV", None)
        variables = {str(key): str(value) for key, value in env.items()} if isinstance(env, dict) else {}
        return Configuration(argv=(*arguments_of(tree), *argv[1:]), env=variables, warnings=warnings)
    option = f"--{entry.stored_config}"
    if entry.stored_config and option in argv[:-1]:
        at = argv.index(option)
        ignored = " ".join(shown(arg) for arg in (*argv[:at], *argv[at + 2 :]) if arg.startswith("--"))
        tree = _load(argv[at + 1], invocation, folder, warnings)
        arguments, notes = arguments_of_stored(tree, get_backend(invocation.backends[0]), shown(argv[at + 1]))
        if ignored:
            message = f"{ignored} dropped: the file of {option} replaces all other arguments"
            notes.append(Note(message=message, where=invocation.where))
        return Configuration(argv=arguments, warnings=[*warnings, *notes])
    return _with_options(invocation, entry, folder)


def arguments_of(tree: Mapping[str, Any]) -> tuple[str, ...]:
    """Return flat settings as command-line arguments: lists as several arguments, mappings as JSON."""
    arguments: list[str] = []
    for key, value in tree.items():
        arguments.append(f"--{key}")
        if isinstance(value, list):
            arguments += [
                json.dumps(item, ensure_ascii=False) if isinstance(item, (dict, list)) else str(item) for item in value
            ]
        else:
            arguments.append(json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else str(value))
    return tuple(arguments)


def _with_options(invocation: Invocation, entry: Entry, folder: str | None) -> Configuration:
    """Expand `--config FILE` in place."""
    argv, where = invocation.argv, invocation.where
    arguments: list[str] = []
    warnings: list[Note] = []
    at = 0
    while at < len(argv):
        name = argv[at].lstrip("-")
        if argv[at].startswith("--") and name in entry.config and at + 1 < len(argv):
            if "$" in shown(argv[at + 1]):
                warnings.append(Note(message=f"--{name} {shown(argv[at + 1])} cannot be read", where=where))
            else:
                arguments += arguments_of(_load(argv[at + 1], invocation, folder, warnings))
            at += 2
            continue
        arguments.append(argv[at])
        at += 1
    return Configuration(argv=tuple(arguments), warnings=warnings)


def _load(arg: str, invocation: Invocation, folder: str | None, warnings: list[Note]) -> dict[str, Any]:
    name, where = shown(arg), invocation.where
    normal = os.path.normpath(os.path.join(invocation.directory, name))
    if "$" in invocation.directory and normal not in {*invocation.files, *invocation.changes}:
        normal = os.path.normpath(name)
    change = invocation.changes.get(normal)
    if change is not None:
        is_made = "removed by" if change.removes else "written or edited by"
        message = f"the configuration {name} is {is_made} `{change.how}`"
        known = "" if change.removes else ", the effect of which is not known without running it"
        raise refuse(f"{message}{known}", change.where, "import the file itself, as it is after that")
    made: Command | None = None
    for command in invocation.before:
        if any(os.path.normpath(shown(word).rpartition("=")[2]) == normal for word in command.words):
            made = command
            given = f"{name} is also given to {shown(command.words[0])}, before"
            warnings.append(Note(message=f"{given}: what that may change in it is not read", where=command.where))
    paths = [path for each in dict.fromkeys((normal, name)) for path in candidates(each, folder) if path.is_file()]
    if normal in invocation.files:
        return _parsed(invocation.files[normal], str(paths[0]) if paths else name, warnings)
    if not paths and made is not None:
        message = f"the configuration {name} does not exist: {shown(made.words[0])} may make it, which is not run"
        raise refuse(message, made.where, "import the file itself, as it is after that")
    if not paths:
        raise refuse(
            f"the configuration {name} does not exist", where, "run it where the file is", "--set VARIABLE=VALUE"
        )
    return _parsed(read_text(paths[0]), str(paths[0]), warnings)


def _parsed(text: str, file: str, warnings: list[Note]) -> dict[str, Any]:
    tree = parse_mapping(text, file)
    warnings += repeated_keys(text, file)
    return with_base(tree, file)


# -- backends that are configured by nested YAML


def _nested(invocation: Invocation, entry: Entry, folder: str | None) -> Configuration:
    rest: list[str] = []
    warnings: list[Note] = []
    tree: Mapping[str, Any] | None = None
    argv = invocation.argv
    at = 0
    while at < len(argv):
        name, equals, value = argv[at].lstrip("-").partition("=")
        if name in entry.config and argv[at].startswith("-"):
            name = value if equals else argv[at + 1] if at + 1 < len(argv) else ""
            tree = _load(name, invocation, folder, warnings)
            at += 1 if equals else 2
            continue
        rest.append(argv[at])
        at += 1
    if tree is None and invocation.program:
        raise refuse(f"{invocation.program} needs --{entry.config[0]} FILE", invocation.where)
    return Configuration(argv=tuple(rest), tree=tree, warnings=warnings)


def read_tree(tree: Mapping[str, Any], argv: Sequence[str], entry: Entry, catalogue: Catalogue) -> Parsed:
    """Return a nested configuration as dotted arguments, overridden by options of the entry script."""
    parsed = Parsed()
    flatten = entry.flatten or (lambda nested: dict(nested))
    for path, value in flatten(tree).items():
        if is_known(path, catalogue):
            meant = as_meant(path, value, catalogue)
            problem = catalogue.check(path, meant)
            parsed.values[path] = value
            if problem is not None:
                parsed.warnings.append((path, f"is kept as it is: {problem}"))
            if type(meant) is not type(value):
                kind = "text in YAML" if isinstance(value, str) else "no whole number"
                parsed.warnings.append((path, f"is read as {meant!r}: {value} is {kind}"))
        else:
            parsed.unknown[path] = (value,)
    for note in entry.file_notes(tree, catalogue.version) if entry.file_notes else ():
        (parsed.problems if note.refused else parsed.warnings).append((note.key, note.text))
        parsed.unknown.pop(note.key, None)
        parsed.foreign.update({note.key} if note.whole else ())
    for path, value in _options(argv, entry, parsed):
        parsed.values[path] = value
        parsed.unknown.pop(path, None)
    return parsed


def as_meant(path: str, value: Value, catalogue: Catalogue) -> Value:
    """Return the number that a value of a file stands for, which is what its field holds: `1e-5` is text there."""
    argument = catalogue.get(path)
    if isinstance(value, str) and _EXPONENT.fullmatch(value):
        return float(value)
    is_whole = isinstance(value, float) and value.is_integer() and argument is not None and argument.type == "int"
    return int(value) if isinstance(value, float) and is_whole else value


def is_known(path: str, catalogue: Catalogue) -> bool:
    """Return whether a backend that is configured by nested YAML reads a key."""
    plain = ".".join(part.partition("#")[0] for part in path.split("."))
    return catalogue.get(path) is not None or catalogue.get(plain) is not None or catalogue.is_open(plain)


def _options(argv: Sequence[str], entry: Entry, parsed: Parsed) -> list[tuple[str, Value]]:
    """Yield (dotted path, value) for `--epochs 2`, `--options a.b=1` and `--a.b 1` of the entry script."""
    found: list[tuple[str, Value]] = []
    at = 0
    while at < len(argv):
        name, equals, attached = argv[at].lstrip("-").partition("=")
        is_option = argv[at].startswith("--")
        at += 1
        if not is_option:
            parsed.positional.append(shown(argv[at - 1]))
            continue
        arguments = [attached] if equals else []
        while not equals and at < len(argv) and not argv[at].startswith("--"):
            arguments.append(argv[at])
            at += 1
        if name in entry.pairs:
            found += [(key, scalar(value)) for key, _, value in (arg.partition("=") for arg in arguments)]
        elif name in entry.options or "." in name:
            found.append((entry.options.get(name, name), scalar(arguments[0]) if arguments else True))
        else:
            parsed.unknown[name] = tuple(shown(arg) for arg in arguments)
    return found


def scalar(arg: str) -> Value:
    """Return a command-line argument as a YAML scalar."""
    import yaml

    text = shown(arg)
    try:
        if len(text) >= 10_000:
            return text
        check_yaml(text, "")
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, BeyondBudget):
        return text
    return text if value is None and text.lower() not in ("null", "none", "~") else value
