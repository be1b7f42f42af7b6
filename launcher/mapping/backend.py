"""The backend interface: names, versions, a mapping table, a catalogue, rules, and how a backend is started."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backends import BUILT_IN
from launcher import plugins
from launcher.catalogue.user import NAME, BrokenFork, forks, load_fork
from launcher.catalogue.versions import FORK, base_version, in_range, is_numbered, nearest_versions
from launcher.job import Job, Value, fields
from launcher.nearest import nearest
from launcher.plan.start import Watch
from launcher.records import dataclass

if TYPE_CHECKING:
    from launcher.catalogue.catalogue import Catalogue
    from launcher.catalogue.checkout.read import ParserSource
    from launcher.catalogue.requirements import Needed
    from launcher.job.model import Model
    from launcher.mapping.computation import Computation
    from launcher.mapping.environment import Variable
    from launcher.mapping.family_row import FamilyRow
    from launcher.mapping.native import NativeArgs
    from launcher.mapping.native_only import NativeOnlyArg
    from launcher.mapping.rows import Table
    from launcher.mapping.stack_figure import StackFigure
    from launcher.mapping.substitute import Substitute
    from launcher.mapping.unbuildable_models import Unbuildable
    from launcher.plan.plan import LaunchPlan

ENTRY_POINTS = "launch.backends"


class UnknownBackend(LookupError):
    """No backend of that name is installed."""


class UnknownVersion(LookupError):
    """The backend has no catalogue for that version.

    Attributes:
        message: what is wrong, without `add`.
        add: the command that would make it known where it is, or may be, a fork of the user's; empty: it is none.
    """

    def __init__(self, message: str, add: str = "") -> None:
        super().__init__(f"{message}: {add}" if add else message)
        self.message, self.add = message, add


@dataclass(frozen=True, slots=True, kw_only=True)
class FileNote:
    """What a version makes of a key of a configuration file.

    Attributes:
        text: follows the key in a sentence.
        refused: the backend does not start with it.
        whole: the version has no entry point for such a file.
    """

    key: str
    text: str
    refused: bool = False
    whole: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Description of the commands and files of this backend, by which `launch import` recognises them.

    Attributes:
        programs: console commands and their sub-commands that train; empty tuple: the command has none.
        scripts: suffixes of training script paths, with the sub-command that each corresponds to ("": none).
        excluded: programs ("swift sft") and suffixes of script paths of the same project that are started in the same
            way, and why they are not imported.
        drivers: options with which a program ("megatron rlhf") starts another one, and why that is not imported; with
            `false` after it, it does not.
        fork_options: options of forks, whose scripts also take this backend's arguments, and the project of each.
        command_argument: name under which the table reads the sub-command; None: there is none.
        config: options that name a configuration file; its values apply at the position of the option.
        positional_config: the first argument may be a configuration file (.yaml, .yml, .json).
        options: options of the entry script that set a key of the configuration (`epochs` -> `runner_config.epochs`).
        pairs: options followed by `key=value` words that set keys of the configuration.
        flatten: nested configuration to arguments; None: its keys are the arguments.
        file_notes: what a version refuses or drops of a nested configuration that no argument keeps.
        only: arguments that distinguish training from other uses of the same program, with the values that train.
        other_models: arguments that name the kind of model, with the values (shell patterns) of kinds that no job
            describes.
        environment_cluster: nodes and devices come from NNODES and NPROC_PER_NODE; without them one process starts.
        arguments_section: top-level keys of a YAML file: of `--flag: value` pairs, and of the environment.
        stored_config: option that names a YAML file of arguments by the names under which the parser stores them; it
            replaces all other arguments.
        stored: names in such files (`name`, or `name=value` for a switch) that the parser stores otherwise ("":
            nowhere), it is the default.
        as_typed: arguments that an import writes again as its input has them, or leaves out as it does, even where that
            changes nothing: rows write another form with the same effect.
        markers: prefixes of variable names and paths that occur only where this backend runs.
        native_only: its arguments without a field: what each does, why it has none, and the nearest substitutes on
            other backends.
        renames: file that lists arguments renamed or removed between versions.
    """

    programs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    scripts: Mapping[str, str] = field(default_factory=dict)
    excluded: Mapping[str, str] = field(default_factory=dict)
    drivers: Mapping[tuple[str, str], str] = field(default_factory=dict)
    fork_options: Mapping[str, str] = field(default_factory=dict)
    command_argument: str | None = None
    config: tuple[str, ...] = ()
    positional_config: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    pairs: tuple[str, ...] = ()
    flatten: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None
    file_notes: Callable[[Mapping[str, Any], str], Iterable[FileNote]] | None = None
    only: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    other_models: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    environment_cluster: bool = False
    arguments_section: tuple[str, str] | None = None
    stored_config: str = ""
    stored: Mapping[str, str] = field(default_factory=dict)
    as_typed: tuple[str, ...] = ()
    markers: tuple[str, ...] = ()
    native_only: Callable[[], tuple[NativeOnlyArg, ...]] = tuple
    renames: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VocabularySize:
    """The arguments from which a backend computes the vocabulary size, before padding.

    Attributes:
        size: argument of the size.
        tokenizer: argument of the tokenizer's class.
        added: classes that make their vocabulary from the argument alone, without a file, and the tokens that they add.
        usual: classes that are made for the files of one model, and the tokens of these.
    """

    size: str
    tokenizer: str
    added: Mapping[str, int]
    usual: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """One training stack. Everything is data or a pure function; heavy modules are imported on first use.

    Attributes:
        name: value of `backend=`.
        title: display name.
        versions: versions with a catalogue and a table, newest first.
        default_version: the one of a job that names none; "": the first of `versions`. Declared, so that a newer
            version changes nothing for jobs that name none.
        devices: device types that it runs on (`cuda`, `npu`).
        table: version to mapping table.
        catalogue: version to catalogue.
        training_catalogue: version to the arguments that training reads; None: those of its catalogue. A fork also has
            those of the version it is like that its parser lacks: its training has their defaults.
        parser_source: where a checkout of it, or of a fork, has its parser; None: no fork is read from its source.
        launch: job and native arguments to a plan that starts the backend's own entry point.
        prepare: changes that the backend's conventions make to a job before it is translated (derived defaults).
        command: job to the sub-command that trains it, on which defaults may depend; "": there is none.
        argv: native arguments to command-line arguments, in the backend's own style.
        rules: modules that declare the backend's rules.
        computations: how it computes what not all backends compute in the same way.
        profile: what it keeps and does otherwise than Megatron-core, for estimates.
        requires: what must be importable (`module:name`) or set in the environment (`env:NAME`) for a native run.
        install_hint: how to install it.
        reads_hub: it fetches models by their hub name; otherwise weights must lie in a local directory.
        native_cpu: module whose NATIVE_CPU defines how the entry point runs on CPU; None: it cannot.
        default_ffn_size: model and version to the FFN size of dense layers where none is given; None: it has none.
        mapping_values: dotted keys of its YAML file whose mapping is a value; every other mapping is a section.
        vocabulary_size: the arguments of the vocabulary size; None: it takes the model's or the tokenizer's.
        converted_folder: job and version to the folder with converted weights from which it starts, where that version
            cannot read the Hugging Face weights that the job names; "": any, named by checkpoint.load; None: nothing
            must be converted.
        checkpoint_format: module whose FORMAT (launcher.convert.formats.format) is its weight format; None: none.
        also_loads: modules of further weight formats that it loads.
        adapter_format: module whose FORMAT is its LoRA adapter format; None: none.
        families: what it calls each model family, by model_type, and since when it trains it.
        unbuildable: kinds of model for which it has no code; used by `check` and conversions (`cannot_build`).
        stacks_layers: whether its torch_dist checkpoints of a model stack all layers in one tensor; None: as
            Megatron-LM, which does if all layers are of one kind.
        stored_classes: packages whose classes its checkpoints contain besides weights; they are read as inert records.
        aliases: other spellings of versions ("4.6" for "4.6.0").
        other_entries: catalogues of further entry points that are not separate versions; `launch args` lists them.
        absent: job to the canonical fields that the absence of arguments decides beyond the parser's defaults, such as
            packing in pre-training and a start from random weights.
        multimodal: whether a job's model also reads images, audio or video; None: it trains language models only.
        substitutes: what it does in place of values that a job written for another backend has and it cannot take.
        attention_dtype: job and version to the number format of attention, where it is not the job's.
        launchers: folder with the catalogues of its launchers, by name, and of `environment`.
        entry: description of its commands, for `launch import`.
        own_scripts: training scripts of the checkouts of forks, by the version of the fork; relative paths.
        watch: its log line of an iteration and the files that mark complete checkpoints.
        environment: variables that its jobs get, with condition and reason.
        support: its dependencies, and the versions of them that work.
        described_by: tools whose input files describe runs of this backend (`simumax`), for `launch import`.
    """

    name: str
    title: str
    versions: tuple[str, ...]
    default_version: str = ""
    devices: tuple[str, ...]
    table: Callable[[str], Table]
    catalogue: Callable[[str], Catalogue]
    launch: Callable[[Job, NativeArgs], LaunchPlan]
    argv: Callable[[NativeArgs], list[str]]
    training_catalogue: Callable[[str], Catalogue] | None = None
    parser_source: Callable[[], ParserSource] | None = None
    command: Callable[[Job], str] = field(default=lambda job: "")
    prepare: Callable[[Job, str], Job] = field(default=lambda job, version: job)
    rules: tuple[str, ...] = ()
    computations: Callable[[], tuple[Computation, ...]] = tuple
    profile: Callable[[], tuple[StackFigure, ...]] = tuple
    requires: tuple[str, ...] = ()
    install_hint: str = ""
    reads_hub: bool = False
    native_cpu: str | None = None
    checkpoint_format: str | None = None
    also_loads: tuple[str, ...] = ()
    adapter_format: str | None = None
    families: Callable[[], Mapping[str, FamilyRow]] = dict
    unbuildable: Callable[[], tuple[Unbuildable, ...]] = tuple
    stacks_layers: Callable[[Model], bool] | None = None
    stored_classes: tuple[str, ...] = ()
    default_ffn_size: Callable[[Model, str], int | None] = field(default=lambda model, version: None)
    mapping_values: frozenset[str] = frozenset()
    vocabulary_size: VocabularySize | None = None
    converted_folder: Callable[[Job, str], str | None] = field(default=lambda job, version: None)
    aliases: Mapping[str, str] = field(default_factory=dict)
    other_entries: tuple[str, ...] = ()
    launchers: Path | None = None
    absent: Callable[[Job], Mapping[str, Value]] = field(default=lambda job: {})
    multimodal: Callable[[Job], bool] | None = None
    substitutes: Callable[[], tuple[Substitute, ...]] = tuple
    attention_dtype: Callable[[Job, str], str] = field(default=lambda job, version: str(job.precision.dtype))
    entry: Entry = Entry()
    own_scripts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    watch: Watch = Watch()
    environment: tuple[Variable, ...] = ()
    support: tuple[Needed, ...] = ()
    described_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.default_version and self.versions:
            object.__setattr__(self, "default_version", self.versions[0])

    def version(self, wanted: str | None) -> str:
        """Return the version to translate for; None: the default one.

        Raises:
            UnknownVersion: there is no catalogue for it.
        """
        if wanted is None:
            return self.default_version
        if wanted in self.versions:
            return wanted
        if wanted in self.aliases:
            return self.aliases[wanted]
        like, plus, fork = wanted.partition(FORK)
        if plus and like in self.versions and self.parser_source is not None:
            add = f"launch catalogue add DIR --name {fork} --like {self.name}@{like}"
            raise UnknownVersion(f"{self.title} {wanted} is a fork of {like} that is not added here", add)
        may_be_fork = self.parser_source is not None and not is_numbered(wanted) and NAME.fullmatch(wanted)
        what = "neither a version nor a fork that is added here" if may_be_fork else "not known"
        near = f"nearest: {self.nearest_versions(wanted)[0]}, newest: {self.versions[0]}"
        message = f"{self.title} {wanted} is {what}; {near}; versions: {', '.join(self.versions)}"
        raise UnknownVersion(message, f"launch catalogue add DIR --name {wanted}" if may_be_fork else "")

    def nearest_versions(self, wanted: str) -> list[str]:
        """Return the versions, the nearest to an unknown one first: those of a similar name, then by number."""
        similar = self.similar_versions(wanted)
        return [*similar, *(each for each in nearest_versions(wanted, self.versions) if each not in similar)]

    def similar_versions(self, wanted: str) -> list[str]:
        """Return the branches and forks whose names are like that of an unknown version."""
        named = {each.partition(FORK)[2] or each: each for each in self.versions if not is_numbered(each)}
        return [named[name] for name in nearest(wanted, named)]

    def has_version(self, wanted: str) -> bool:
        """Return whether a version, or another spelling of one, is known."""
        return wanted in self.versions or wanted in self.aliases

    def arguments_of_training(self, version: str) -> Catalogue:
        """Return the arguments that training of a version reads, with their defaults, for rules."""
        return self.catalogue(version) if self.training_catalogue is None else self.training_catalogue(version)

    def own_script(self, version: str, program: str | None) -> str | None:
        """Return the path of a fork's own training script of that name; None: it has none, or several."""
        found = [path for path in self.own_scripts.get(version, ()) if f"/{path}".endswith(f"/{program}")]
        return found[0] if len(found) == 1 else None

    def cannot_build(self, version: str, model: Model) -> tuple[Unbuildable, ...]:
        """Return the reasons for which a version cannot build a model; empty where it can."""
        return tuple(row for row in self.unbuildable() if in_range(version, row.since, row.until) and row.when(model))

    def figures(self, version: str) -> tuple[StackFigure, ...]:
        """Return the rows of the profile that hold for a version."""
        return tuple(row for row in self.profile() if in_range(version, row.since, row.until))


def late(target: str) -> Callable[..., Any]:
    """Return a function that is imported when it is first called; target: `package.module:function`."""
    module, _, name = target.partition(":")

    def call(*args: Any) -> Any:
        return getattr(import_module(module), name)(*args)

    return call


@cache
def backend_names() -> tuple[str, ...]:
    """Return the names of all installed backends that can be used, built-in ones first."""
    return (*BUILT_IN, *(name for name in plugins.names(ENTRY_POINTS, BUILT_IN) if not _problem(name)))


def is_backend(name: str) -> bool:
    """Return whether a backend of that name can be used; built-in ones are known without the list of plug-ins."""
    return name in BUILT_IN or name in backend_names()


def broken_backends() -> dict[str, str]:
    """Return the installed backends that cannot be used, and why."""
    return {name: why for name in plugins.names(ENTRY_POINTS, BUILT_IN) if (why := _problem(name))}


@cache
def _problem(name: str) -> str:
    try:
        get_backend(name)
    except plugins.BrokenPlugin as error:
        return str(error)
    return ""


@cache
def get_backend(name: str) -> Backend:
    """Return the backend of that name.

    Raises:
        UnknownBackend: none is installed under that name.
        BrokenPlugin: it is another distribution's and cannot be used.
    """
    if name in BUILT_IN:
        found = import_module(f"backends.{name}").BACKEND
        assert isinstance(found, Backend)
        return with_forks(found)
    if name not in plugins.plugins(ENTRY_POINTS):
        raise UnknownBackend(name)
    backend: Backend = plugins.load(ENTRY_POINTS, name, Backend)
    problem = _incomplete(backend)
    if problem:
        raise plugins.BrokenPlugin(plugins.title(ENTRY_POINTS, name), problem)
    return with_forks(backend)


def _incomplete(backend: Backend) -> str:
    """Return what a plug-in lacks; tests hold built-in backends to the same.

    A field that the table does not mention would be dropped silently.
    """
    from launcher.mapping.rows import unknown_fields, unmapped_fields  # few users have a plug-in

    if not backend.versions:
        return "has no version: Backend.versions is empty"
    if backend.default_version not in backend.versions:
        return f"has no version {backend.default_version}, which Backend.default_version names"
    for version in backend.versions:
        try:
            backend.catalogue(version)
            table = backend.table(version)
            missing, unknown = unmapped_fields(table, version), unknown_fields(table, version)
        except Exception as error:
            return f"has no table or catalogue for its version {version}: {plugins.reason(error)}"
        if unknown:
            return (
                f"has a table for version {version} of fields that a job does not have: {', '.join(unknown)}; it was "
                "written for another version of Launch, or they are misspelt"
            )
        if missing:
            return (
                f"has an incomplete table for version {version}: it lacks {_by_section(missing)}; each field "
                "needs a row, `unsupported` with the reason, or `irrelevant` with the reason"
            )
    return ""


def _by_section(paths: list[str]) -> str:
    """Return dotted paths in few words: `moe.*` for a section of which all fields are among them."""
    whole: dict[str, int] = {}
    for path in fields():
        whole[path.rpartition(".")[0]] = whole.get(path.rpartition(".")[0], 0) + 1
    found: dict[str, list[str]] = {}
    for path in paths:
        section, _, name = path.rpartition(".")
        found.setdefault(section, []).append(name)
    shown = []
    for section, each in found.items():
        if not section:
            shown += each
        elif len(each) == whole[section]:
            shown.append(f"{section}.*")
        else:
            shown.append(f"{section}.{each[0]}" if len(each) == 1 else f"{section}.{{{','.join(each)}}}")
    return ", ".join(shown)


def broken_forks(backend: Backend) -> dict[str, str]:
    """Return the forks of a backend that cannot be used, by name, with the reason."""
    found: dict[str, str] = {}
    for fork in forks(backend.name):
        if fork.like not in backend.versions:
            found[fork.name] = f"{fork.file} is like {backend.title} {fork.like}, which is not known"
            continue
        try:
            load_fork(fork)
        except BrokenFork as error:
            found[fork.name] = str(error)
    return found


def with_forks(backend: Backend) -> Backend:
    """Return a backend with the forks of its versions that the user added, as further versions."""
    found = [fork for fork in forks(backend.name) if fork.like in backend.versions]
    if not found:
        return backend
    from launcher.mapping.forks import fork_table, loaded, with_missing  # few users have any

    known = {fork.version: content for fork in found if (content := loaded(fork)) is not None}

    def catalogue(version: str) -> Catalogue:
        return known[version].catalogue if version in known else backend.catalogue(version)

    @cache
    def training_catalogue(version: str) -> Catalogue:
        if version not in known:
            return backend.arguments_of_training(version)
        return with_missing(catalogue(version), backend.catalogue(base_version(version)))

    @cache
    def table(version: str) -> Table:
        base = backend.table(base_version(version))
        return fork_table(base, backend.title, catalogue(version)) if version in known else base

    def on_base(function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of (job or model, version) that is given the version that a fork is like."""
        return lambda described, version: function(described, base_version(version))

    own = {version: content.details.scripts for version, content in known.items()}
    names = {path.rpartition("/")[2] for paths in own.values() for path in paths}
    scripts = dict.fromkeys(sorted(names - set(backend.entry.scripts)), "")
    return replace(
        backend,
        versions=(*backend.versions, *known),
        aliases={**{fork.name: fork.version for fork in found if fork.version in known}, **backend.aliases},
        catalogue=catalogue,
        training_catalogue=training_catalogue,
        table=table,
        prepare=on_base(backend.prepare),
        default_ffn_size=on_base(backend.default_ffn_size),
        converted_folder=on_base(backend.converted_folder),
        attention_dtype=on_base(backend.attention_dtype),
        entry=replace(backend.entry, scripts={**backend.entry.scripts, **scripts}),
        own_scripts=own,
    )


def forget_forks() -> None:
    """Read the user's forks again when a backend is next asked for: one was added or removed."""
    from launcher.mapping.forks import loaded

    get_backend.cache_clear()
    loaded.cache_clear()
