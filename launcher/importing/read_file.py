"""Imports jobs from a file: detects the kind of file, finds its commands or settings, and selects which to import."""

import dataclasses
import os.path
import re
import shlex
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from launcher.budgets import BeyondBudget
from launcher.importing.composed import Composed, composed
from launcher.importing.config import Configuration, is_known
from launcher.importing.evaluate import notes, run_script
from launcher.importing.flat import flat_settings
from launcher.importing.imported import Imported
from launcher.importing.invocation import ExcludedCommand, Invocation, find
from launcher.importing.notes import ImportRefused, Note, no_training, refuse
from launcher.importing.other_programs import program_of_file, why_not
from launcher.importing.other_schedulers import directives
from launcher.importing.other_shells import bash_under_sh
from launcher.importing.read_command import ImportOptions, read_command
from launcher.importing.reading import BASES, encoding_notes, parse_mapping, read_text, repeated_keys
from launcher.importing.shell.placeholders import INHERITED, placeholder, shown
from launcher.importing.shell.state import State
from launcher.importing.slurm import batch_options, ignored, request_of
from launcher.importing.stored import arguments_of_stored, dumped, likely_backends
from launcher.mapping.backend import backend_names, get_backend
from launcher.syntax import PACKAGE

_REFERENCE = re.compile(r"\$\{\w+\}")
# A dash before an option or in a number, a quote at a value, a no-break space.
_TYPOGRAPHIC = re.compile(
    r"(?<=\s)([\u2010-\u2015\u2212]+)(?=[-\w])|(?<=\d[eE])([\u2010-\u2015\u2212])(?=\d)"
    r"|--[\w-]+[ =]([\u2018-\u201f])|(\u00a0)"
)
# Files that are no bash by their suffix, or by their first line.
_LANGUAGES = {
    ".py": "a Python program",
    ".ipynb": "a notebook",
    ".ps1": "a PowerShell script",
    **dict.fromkeys((".md", ".rst"), "a text with commands in it"),
    ".dockerfile": "a Dockerfile",
    **dict.fromkeys((".bat", ".cmd"), "a batch file of Windows"),
    **dict.fromkeys((".fish", ".csh", ".tcsh"), "a script of another shell"),
}
_OTHER = re.compile(r"#!.*[/ ](python[\d.]*|fish|t?csh|perl|ruby|node|pwsh)\b")
_COMMENT = re.compile(r"(?:^|\s)#")
_POSITIONAL = re.compile(r"\$\{?[1-9@*#]")
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
# Above this share of keys that nothing reads, a configuration belongs to another program.
_MAX_UNKNOWN_SHARE = 0.4
# Below this share of keys that are some backend's arguments, it is no use to name a backend.
_LEAST_KNOWN_SHARE = 0.25
_STRUCTURED = (".yaml", ".yml", ".json")


def read_file(
    path: str | Path,
    options: ImportOptions,
    *,
    variables: Mapping[str, str] | None = None,
    all_commands: bool = False,
) -> list[Imported]:
    """Return the jobs of a file: one, or with `all_commands` one for each training command.

    Args:
        variables: shell variables with given values, which assignments in the script do not change.

    Raises:
        ImportRefused: the file cannot be read or understood; holds every reason with its place.
    """
    path = Path(path)
    try:
        return _read(path, read_text(path), options, variables or {}, all_commands)
    except BeyondBudget as error:
        raise refuse(error.message, error.where or str(path), error.works) from None


def _read(
    path: Path, text: str, options: ImportOptions, variables: Mapping[str, str], all_commands: bool
) -> list[Imported]:
    options = dataclasses.replace(options, folder=str(path.parent), name=options.name or job_name(path))
    if path.suffix in _STRUCTURED:
        return [_structured(text, path, options, variables)]
    dump = dumped(text)
    if dump is not None:
        world = dump.values.get("world_size")
        options = dataclasses.replace(options, sources={str(path): dump.text})
        if options.world_size is None and isinstance(world, int) and world > 0:
            options = dataclasses.replace(options, world_size=world)
        return [_settings(Composed(tree=dump.values), path, options, is_dump=True)]
    if _is_argv(text):
        return [read_arguments(_split(text, path), options, str(path), text)]
    suffix = ".dockerfile" if path.name.startswith(("Dockerfile", "Containerfile")) else path.suffix
    language = _LANGUAGES.get(suffix) or ("a script of another language" if _OTHER.match(text) else "")
    if language:
        raise no_training(
            f"it is {language}; only bash scripts are read",
            str(path),
            *(f"launch import --backend {name} -- ARGUMENTS" for name in backend_names() if _has_scripts(name)),
        )
    return _script(text, path, options, variables, all_commands)


def _split(text: str, path: Path) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError as error:
        raise refuse(f"the file is not a list of arguments: {error}", str(path)) from None


def job_group(path: str | Path) -> str | None:
    """Return the group with which Launch composes a file that is a job of Launch already; None: it is not one.

    What `import -o` wrote has no `@package` line, which Hydra needs in a recipe: it is a "job".

    Raises:
        ImportRefused: it cannot be read, or is not YAML.
    """
    path = Path(path)
    if path.suffix not in (".yaml", ".yml"):
        return None
    text = read_text(path)
    tree = parse_mapping(text, str(path))
    if not tree or not _is_job(tree, 0.0):
        return None
    return "recipe" if PACKAGE in text[:4096] else "job"


def job_name(path: Path) -> str:
    """Return a job name derived from a file name."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", path.stem).strip("._-") or "imported"


def _is_argv(text: str) -> bool:
    """Return whether a file holds only arguments: its first argument is an option."""
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and not line.startswith("#")), "")
    return first.startswith("--")


def read_arguments(arguments: Sequence[str], options: ImportOptions, where: str = "", text: str = "") -> Imported:
    """Return the job that a plain argument list describes.

    Raises:
        ImportRefused: see `read_command`.
    """
    names = [name for name in backend_names() if get_backend(name).entry.flatten is None]
    sources = {where: text} if where else {}
    options = dataclasses.replace(options, sources=sources)
    backends = (options.backend,) if options.backend else tuple(names)
    arguments = [arg for arg in arguments if arg.strip() not in ("", "\\")]
    return read_command(Invocation(program="", backends=backends, argv=tuple(arguments), where=where), options)


# -- scripts


def _script(
    text: str, path: Path, options: ImportOptions, variables: Mapping[str, str], all_commands: bool
) -> list[Imported]:
    batch = batch_options(text)
    slurm = request_of(batch)
    state = State(
        script=str(path),
        variables={**slurm.variables(), **variables},
        exported=set(slurm.exported),
        fixed=frozenset(variables),
        outer=batch,
    )
    try:
        run_script(text, state, path.parent)
    except RecursionError:
        raise refuse("the script is nested too deeply", str(path)) from None
    found, excluded = find(state.commands, options.backend)
    warnings = [
        *(*notes(state.warnings), *_assumed(state), *_typographic(text, path), *encoding_notes(path)),
        *(*ignored(text, str(path)), *directives(text, str(path)), *bash_under_sh(text, str(path))),
    ]
    if not found:
        nothing = _nothing_found(path, excluded, len(state.commands), state.stopped, text)
        raise ImportRefused(
            [*notes(state.problems), nothing] if options.partial else notes(state.problems) or [nothing],
            no_training=not state.problems,
        )
    if state.problems and not options.partial:
        raise ImportRefused(notes(state.problems), partial=True)
    options = dataclasses.replace(options, sources=state.sources)
    chosen = _distinct(found)
    if not all_commands:
        warnings += [
            Note(message=f"{each.program} is dropped", where=each.where, works=("--all-commands",))
            for each in chosen[1:]
        ]
        chosen = chosen[:1]
    warnings += [note for each in chosen for note in _globs(each, state)]
    try:
        jobs = [read_command(invocation, options) for invocation in chosen]
    except ImportRefused as error:
        raise ImportRefused([*error.notes, *_typographic(text, path)], partial=error.partial) from None
    return [
        dataclasses.replace(job, warnings=(*warnings, *job.warnings), problems=(*notes(state.problems), *job.problems))
        for job in jobs
    ]


def _typographic(text: str, path: Path) -> list[Note]:
    """Return notes on typographic characters that text processors put in place of ASCII ones."""
    lines = [(number, _TYPOGRAPHIC.search(line)) for number, line in enumerate(text.splitlines(), 1)]
    return [
        Note(
            message=f"{_named(found.group(found.lastindex or 0)[0])}: a shell reads it as part of an argument",
            where=f"{path}:{number}",
            works=("type the hyphen, quote or space again",),
        )
        for number, found in lines
        if found is not None and not _COMMENT.search(found.string, 0, found.start())
    ][:3]


def _named(char: str) -> str:
    """Return a message on a character with its code point and name, since some are invisible."""
    name = unicodedata.name(char, "no name").lower()
    return f"{char.strip() or 'a blank'} is no ASCII character (U+{ord(char):04X}, {name})"


def _distinct(found: Sequence[Invocation]) -> list[Invocation]:
    """Return the commands without duplicates (the same one for each node)."""
    seen: dict[tuple[str, tuple[str, ...], tuple[str | None, ...]], Invocation] = {}
    for invocation in found:
        paths = (os.path.normpath(os.path.join(invocation.directory, shown(arg))) for arg in invocation.argv)
        files = tuple(map(invocation.files.get, paths))
        seen.setdefault((invocation.program, invocation.argv, files), invocation)
    return list(seen.values())


def _globs(invocation: Invocation, state: State) -> list[Note]:
    """Return notes on patterns of file names in a training command."""
    names = dict.fromkeys(word for word in map(shown, invocation.argv) if word in state.globs)
    message = "{}: bash puts the files of the machine that match in its place, which are not known: kept as one word"
    return [Note(message=message.format(name), where=state.globs[name], works=("name the files",)) for name in names]


def _assumed(state: State) -> list[Note]:
    message = "{} is not {}; the condition takes it as empty"
    return [
        Note(
            message=message.format(name, "known here" if name in INHERITED else "set"),
            where=where,
            works=(f"--set {name}=VALUE",),
        )
        for name, where in state.assumed.items()
        if name.isidentifier() or name.isdigit()
    ]


def _nothing_found(path: Path, excluded: Sequence[ExcludedCommand], commands: int, stopped: str, text: str) -> Note:
    if excluded:
        command = excluded[0]
        readers = [name for name in backend_names() if _has_scripts(name)] if command.unknown else []
        why = f"{command.why}; its arguments can be read as those of a backend" if readers else command.why
        works = tuple(f"--backend {name}" for name in readers)
        return Note(message=f"{command.program}: {why}", where=command.where, works=works)
    known = [name for each in backend_names() for name in _entry_names(each)]
    what = "no command" if not commands else f"none of its {commands} commands"
    before = f" before it exits at line {stopped.rpartition(':')[2]}" if stopped else ""
    works = tuple(dict.fromkeys(known))
    if stopped and _POSITIONAL.search(text):
        before, works = f"{before}; it reads arguments of its own", ("--set 1=ARGUMENT --set 2=ARGUMENT …",)
    return Note(message=f"{what} starts a known training program{before}", where=stopped or str(path), works=works)


def _has_scripts(name: str) -> bool:
    """Return whether a backend's training scripts take arguments: forks may have a copy under another name."""
    entry = get_backend(name).entry
    return entry.flatten is None and any("/" not in script for script in entry.scripts)


def _entry_names(name: str) -> list[str]:
    entry = get_backend(name).entry
    programs = [f"{program} {'|'.join(commands)}" for program, commands in entry.programs.items()]
    return [*programs, *(script for script in entry.scripts if "/" not in script)]


# -- YAML and JSON


def _structured(text: str, path: Path, options: ImportOptions, variables: Mapping[str, str]) -> Imported:
    tree = parse_mapping(text, str(path))
    if not tree:
        raise no_training("holds no settings", str(path))
    repeated = repeated_keys(text, str(path))
    options = dataclasses.replace(options, sources={str(path): text}, warnings=repeated)
    sections = _argument_sections()
    for (arguments, environment), backends in sections.items():
        if isinstance(tree.get(arguments), dict):
            return _flag_mapping(tree[arguments], tree.get(environment), backends, path, options)
    if _is_job(tree, 0.0) and not {"experiment", *BASES} & set(tree):
        raise refuse("the file is a job of Launch already", str(path), f"launch dry-run {shlex.quote(f'+job={path}')}")
    found = composed(tree, str(path), variables)
    if found.problems and not options.partial:
        raise ImportRefused(found.problems, partial=True)
    options = dataclasses.replace(options, warnings=[*repeated, *found.warnings, *found.problems])
    return _settings(found, path, options)


def _settings(found: Composed, path: Path, options: ImportOptions, *, is_dump: bool = False) -> Imported:
    """Import settings that are merged into one tree."""
    tree = found.tree
    names = _likely(tree, path, options, is_dump=is_dump)
    backend = get_backend(names[0])
    entry = backend.entry
    if backend.catalogue(backend.default_version).style == "argparse":
        argv, notes = arguments_of_stored(tree, backend, str(path), is_dump=is_dump)
        settings = Configuration(argv=argv, env=found.env, warnings=notes)
    elif entry.flatten is None:
        env = tree.pop("ENV", None)
        variables = {str(key): str(value) for key, value in env.items()} if isinstance(env, dict) else {}
        flat = flat_settings(tree, backend, str(path))
        options = dataclasses.replace(
            options, version=options.version or flat.version, world_size=options.world_size or flat.world_size
        )
        settings = Configuration(argv=flat.argv, env={**found.env, **variables}, warnings=flat.notes)
    else:
        settings = Configuration(tree=tree)
    invocation = Invocation(
        program=path.name,
        backends=names,
        command=_command_of(names[0], tree),
        argv=settings.argv,
        cluster=found.cluster,
        where=str(path),
    )
    return read_command(invocation, options, settings)


def _command_of(name: str, tree: Mapping[str, Any]) -> str:
    """Return the sub-command of flat settings, which do not name it."""
    commands = [command for each in get_backend(name).entry.programs.values() for command in each]
    if not commands:
        return ""
    return "rlhf" if tree.get("rlhf_type") is not None and "rlhf" in commands else commands[0]


def _argument_sections() -> dict[tuple[str, str], tuple[str, ...]]:
    sections: dict[tuple[str, str], tuple[str, ...]] = {}
    for name in backend_names():
        section = get_backend(name).entry.arguments_section
        if section is not None:
            sections[section] = (*sections.get(section, ()), name)
    return sections


def _flag_mapping(
    arguments: Mapping[str, Any], environment: Any, backends: tuple[str, ...], path: Path, options: ImportOptions
) -> Imported:
    """Import `--flag: value` pairs: true is a bare flag, false omits the flag."""
    argv: list[str] = []
    for flag, value in arguments.items():
        if value is False or value is None:
            continue
        argv.append(str(flag) if str(flag).startswith("--") else f"--{flag}")
        if value is not True:
            plain = _BRACKETS.fullmatch(str(value)) if _accepts_several(str(flag), backends) else None
            text = plain.group(1).replace(",", " ") if plain is not None else str(value)
            texts = [str(item) for item in value] if isinstance(value, list) else text.split(" ")
            texts = [text for text in texts if text] if plain is not None else texts
            argv += [_REFERENCE.sub(lambda found: placeholder(found.group()), text) for text in texts]
    env = {str(key): str(value) for key, value in environment.items()} if isinstance(environment, dict) else {}
    invocation = Invocation(program=path.name, backends=backends, argv=tuple(argv), env=env, where=str(path))
    return read_command(invocation, options)


def _accepts_several(flag: str, backends: Sequence[str]) -> bool:
    """Return whether an argument takes several values, so that `[2 2]` is a list and not a text."""
    found = (get_backend(name).catalogue(get_backend(name).default_version).get(flag) for name in backends)
    return any(argument is not None and argument.is_list for argument in found)


def _likely(tree: Mapping[str, Any], path: Path, options: ImportOptions, *, is_dump: bool) -> tuple[str, ...]:
    """Return the backend of these settings: the one that knows most of the top-level keys."""
    if options.backend:
        return (options.backend,)
    known: dict[str, float] = {}
    for name in backend_names():
        backend = get_backend(name)
        if backend.entry.flatten is None and not backend.entry.positional_config:
            continue
        catalogues = (*backend.versions, *backend.other_entries)
        flat = {key: value for key, value in tree.items() if backend.entry.flatten or not isinstance(value, dict)}
        share = max(_share(flat, backend.catalogue(version).names()) for version in catalogues) if flat else 0.0
        known[name] = share * len(flat) / len(tree)
    best = max(known, key=lambda name: known[name])
    if _is_job(tree, known[best]):
        raise refuse("the file is a job of Launch already", str(path), f"launch dry-run {shlex.quote(f'+job={path}')}")
    stored = likely_backends(tree, 0.0 if is_dump else known[best], is_dump=is_dump)
    if stored:
        return stored
    if known[best] < 0.5:
        if isinstance(tree.get("defaults"), list):
            raise no_training(
                f"the file is composed of other files, named in its `defaults`: {_names(tree['defaults'])}", str(path)
            )
        other = program_of_file(tree)
        if other is not None:
            raise no_training(why_not(other), str(path))
        works = tuple(f"--backend {name}" for name in known) if _resembles(tree) else ()
        raise no_training("its keys match no backend", str(path), *works)
    _refuse_unknown_sections(tree, best, path)
    return (best,)


def _resembles(tree: Mapping[str, Any]) -> bool:
    """Return whether some of the keys are arguments of a backend: a file of another program has none, or few."""
    backends = [get_backend(name) for name in backend_names()]
    catalogues = [backend.catalogue(backend.default_version) for backend in backends]
    known = sum(any(str(key) in catalogue for catalogue in catalogues) for key in tree)
    return known >= _LEAST_KNOWN_SHARE * len(tree)


def _refuse_unknown_sections(tree: Mapping[str, Any], name: str, path: Path) -> None:
    """Reject a nested configuration whose sections have a backend's names but keys of another program."""
    backend = get_backend(name)
    if backend.entry.flatten is None:
        return
    catalogue = backend.catalogue(backend.default_version)
    flat = backend.entry.flatten({key: value for key, value in tree.items() if key not in BASES})
    unknown = [key for key in flat if not is_known(key, catalogue)]
    if len(unknown) > _MAX_UNKNOWN_SHARE * len(flat):
        some = ", ".join(unknown[:5]) + (", …" if len(unknown) > 5 else "")
        message = f"{len(unknown)} of its {len(flat)} keys are not read by {backend.title}: {some}"
        other = program_of_file(tree)
        whose = "its sections belong to another program" if other is None else why_not(other)
        raise no_training(f"{message}; {whose}", str(path))


def _names(defaults: Sequence[Any]) -> str:
    return ", ".join(str(each) for each in defaults)[:200]


def _is_job(tree: Mapping[str, Any], rival: float) -> bool:
    """Return whether these are sections of a job rather than of a backend that knows this share (`rival`) of them."""
    from launcher.job import Job, fields

    job_share = _share(tree, ("defaults", *Job.__dataclass_fields__))
    if job_share < max(0.9, rival) or {"trainer", "runner_config", "parallel_config"} & set(tree):
        return False
    inside = [f"{top}.{key}" for top, node in tree.items() if isinstance(node, Mapping) for key in node]
    return sum(path in fields() for path in inside) >= len(inside) / 2


def _share(tree: Mapping[str, Any], names: Any) -> float:
    tops = {str(name).partition(".")[0] for name in names} | {"ENV", "base_config"}
    return sum(key in tops for key in tree) / len(tree)
