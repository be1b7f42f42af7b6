"""The parser of a checkout as rows of a catalogue: its own parser, and what its entry scripts add to it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from launcher.catalogue.checkout.classes import Package
from launcher.catalogue.checkout.commands import CommandClasses, outside_bases, rows_of_commands
from launcher.catalogue.checkout.dataclass_group import add_dataclass
from launcher.catalogue.checkout.features import follow_features
from launcher.catalogue.checkout.files import Checkout, CheckoutRefused, SourceFile
from launcher.catalogue.checkout.interpreter import OF_PARSERS, Interpreter
from launcher.catalogue.checkout.rows import Row, Rows
from launcher.catalogue.checkout.values import FunctionValue, ParserValue, Unknown
from launcher.records import dataclass

NOTHING = "no parser found"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParserSource:
    """Where a stack's checkouts have their parser.

    Attributes:
        files: path ends of the file with the parser; the first that a checkout has counts.
        functions: functions that make the parser; the first that the file has counts.
        classes: the dataclasses of its commands, of a stack that has these in place of such functions.
        extends: the parser is that of other packages, of which the checkout has none: project name with which the
            catalogue's sources of the checkout's own arguments begin (`MindSpeed-LLM/`); "": it is whole.
        within: where the checkout has a copy of what it extends, if it has one: its arguments count, too.
        features: file that makes objects whose method `feature_method` adds arguments, and the function that lists
            them; without that function the file's own level does.
        choice_method: method with which a feature adds a choice to an argument.
        provider_argument: keyword with which an entry script hands on the function that adds its own arguments.
        training_call: function that an entry script trains by.
        positional_call: function that takes the provider as its first argument, too.
        skipped: folders whose programs do not train.
        not_entries: names of scripts that train other kinds of model.
        group_class: class that adds a dataclass's fields as arguments.
        types: functions that argparse's `type=` names, with the catalogue's type.
        outside: functions of other packages that add arguments, with the rows.
    """

    files: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    classes: CommandClasses | None = None
    extends: str = ""
    within: ParserSource | None = None
    features: tuple[str, str] = ("", "")
    feature_method: str = ""
    choice_method: str = ""
    provider_argument: str = ""
    training_call: str = ""
    positional_call: str = ""
    skipped: tuple[str, ...] = ()
    not_entries: tuple[str, ...] = ()
    group_class: str = ""
    types: Mapping[str, str] = field(default_factory=dict)
    outside: Mapping[str, tuple[Row, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadParser:
    """What a checkout's parser accepts.

    Attributes:
        rows: its arguments.
        parser: `file:function` of its own parser; empty: it extends one that is not in the checkout.
        scripts: scripts of the checkout that train, relative paths.
        providers: functions that add arguments of entry scripts.
        added: rows that it declares itself, by name: without those of the parser that it extends.
        unread: calls whose arguments the source does not determine, by place.
        outside: functions of other packages that were given the parser and whose arguments are unknown, by name.
        unreadable: files that could not be read, with the reason.
        commands: its commands, where each has arguments of its own.
        extends: it extends a parser that is not in the checkout, of which the base has the arguments.
    """

    rows: tuple[Row, ...]
    parser: str = ""
    scripts: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()
    added: frozenset[str] = frozenset()
    unread: Mapping[str, str] = field(default_factory=dict)
    outside: Mapping[str, str] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    commands: tuple[str, ...] = ()
    extends: bool = False

    @property
    def names(self) -> frozenset[str]:
        """Every option, aliases included, without dashes."""
        return frozenset(name for row in self.rows for name in (row["name"], *row.get("aliases", ())))


def read_parser(checkout: Checkout, source: ParserSource, base: Iterable[Row] = ()) -> ReadParser:
    """Return the arguments of a checkout's parser.

    Args:
        base: rows of the parser that it extends, if it has no parser of its own.

    Raises:
        CheckoutRefused: it is no checkout of such a stack, or its parser cannot be read.
    """
    try:
        _refuse_subfolder(checkout, source)
        if source.classes is not None:
            return _read_classes(checkout, source.classes)
        return _read(checkout, source, base)
    except RecursionError:
        raise CheckoutRefused("its parser is nested too deeply to be read", str(checkout.root)) from None


def _refuse_subfolder(checkout: Checkout, source: ParserSource) -> None:
    """Refuse a folder inside of a checkout: what its parser imports would be missing."""
    entries = () if source.classes is None else source.classes.entries
    ends = [end for end in (*source.files, *entries, *source.features[:1]) if "/" in end]
    around = checkout.inside_of(ends)
    if around is None or any(f"/{path}".endswith(f"/{end}") for path in checkout.paths for end in ends):
        return
    raise CheckoutRefused(
        f"this is a folder of the checkout {around}, not all of it", str(checkout.root), (str(around),)
    )


def _read_classes(checkout: Checkout, source: CommandClasses) -> ReadParser:
    package = Package.of_checkout(checkout, source.folders)
    try:
        classes = source.classes_in(package)
        rows = rows_of_commands(package, classes)
        outside = outside_bases(package, classes)
    except (LookupError, ValueError, AttributeError, TypeError, SyntaxError) as error:
        broken = next((f"{path} {why}" for path, why in checkout.unreadable.items()), "")
        raise CheckoutRefused(broken or f"the classes of its arguments: {error}", str(checkout.root)) from None
    if not classes:
        raise CheckoutRefused(f"{NOTHING}: looked for {', '.join(source.entries)}", str(checkout.root))
    first = package.find(next(iter(classes.values())))
    return ReadParser(
        rows=tuple(rows),
        parser="" if first is None else f"{first.module.path}:{first.name}",
        added=frozenset(row["name"] for row in rows),
        outside=outside,
        unreadable=dict(checkout.unreadable),
        commands=tuple(classes),
    )


def _read(checkout: Checkout, source: ParserSource, base: Iterable[Row]) -> ReadParser:
    base = list(base)
    if not checkout.paths:
        raise CheckoutRefused("holds no Python file: it is no checkout", str(checkout.root))
    interpreter = Interpreter(
        checkout=checkout,
        provider_argument=source.provider_argument,
        group_class=source.group_class,
        choice_method=source.choice_method,
        add_dataclass=add_dataclass,
    )
    found = interpreter.found
    root = _root(checkout, source)
    if root is not None:
        interpreter.follow(root, [ParserValue()] if _takes_parser(root) else [], {})
    features = follow_features(interpreter, *source.features, source.feature_method) if source.feature_method else ""
    own = bool(found.events) and not found.extended and not source.extends
    scripts = _entries(interpreter, source) if source.training_call else ()
    if not found.events or not (own or found.providers or source.extends):
        raise _nothing(checkout, source)
    rows = Rows(types=source.types)
    before = [] if own else [dict(row) for row in base if not _is_of(row, source)]
    rows.seed(before)
    rows.apply(found.events)
    for function in found.outside:
        rows.seed(dict(row) for row in source.outside.get(function, ()) if row["name"] not in rows.rows)
    for row in base if source.extends else ():  # the packages that are not in the checkout add choices, too
        own_row = rows.rows.get(row["name"])
        if own_row is not None and own_row.get("choices") and row.get("choices"):
            more = [choice for choice in row["choices"] if choice not in own_row["choices"]]
            own_row["choices"] = [*own_row["choices"], *more]
    if source.within is not None:
        names = {name for row in rows.rows.values() for name in (row["name"], *row.get("aliases", ()))}
        rows.seed(row for row in _copy(checkout, source.within) if row["name"] not in names)
    known = {row["name"] for row in before}
    return ReadParser(
        rows=tuple(rows.rows.values()),
        parser=f"{root.file.path}:{root.name}" if root is not None and (own or source.extends) else features,
        scripts=scripts,
        providers=tuple(dict.fromkeys(found.providers)),
        added=frozenset(set(rows.rows) - known),
        unread=dict(found.unread),
        outside={name: where for name, where in found.outside.items() if name not in source.outside},
        unreadable=dict(checkout.unreadable),
        extends=bool(source.extends),
    )


def _copy(checkout: Checkout, source: ParserSource) -> tuple[Row, ...]:
    """Return the arguments of a checkout's copy of another parser; none: it has no copy."""
    try:
        found = _read(checkout, source, ())
    except CheckoutRefused:
        return ()
    return found.rows if found.parser else ()


def _is_of(row: Row, source: ParserSource) -> bool:
    """Return whether a row of the version that a checkout extends is the checkout's own to declare."""
    return bool(source.extends) and str(row.get("source", "")).startswith(source.extends)


def _root(checkout: Checkout, source: ParserSource) -> FunctionValue | None:
    """Return the function that makes the checkout's own parser; None: it has none."""
    for end in source.files:
        paths = [path for path in checkout.paths if f"/{path}".endswith(f"/{end}") and not _is_skipped(path, source)]
        for path in sorted(paths, key=lambda each: (each.count("/"), each)):
            file = checkout.file(path)
            found = None if file is None else _function(file, source.functions)
            if found is not None:
                return found
    return None


def _function(file: SourceFile, names: Sequence[str]) -> FunctionValue | None:
    defined = {node.name: node for node in file.tree.body if isinstance(node, ast.FunctionDef)}
    adds = any(isinstance(node, ast.Attribute) and node.attr in OF_PARSERS for node in ast.walk(file.tree))
    return next((FunctionValue(defined[name], file) for name in names if name in defined and adds), None)


def _takes_parser(function: FunctionValue) -> bool:
    names = function.node.args.args
    return bool(names) and names[0].arg == "parser"


def _is_skipped(path: str, source: ParserSource) -> bool:
    return not set(path.split("/")[:-1]).isdisjoint(source.skipped)


def _entries(interpreter: Interpreter, source: ParserSource) -> tuple[str, ...]:
    """Follow what entry scripts add to the parser, and return those scripts."""
    checkout = interpreter.checkout
    scripts: list[str] = []
    for path in checkout.paths:
        if _is_skipped(path, source) or path.rpartition("/")[2] in source.not_entries:
            continue
        text = checkout.text(path)
        if text is None or (source.provider_argument not in text and f"{source.training_call}(" not in text):
            continue
        file = checkout.file(path)
        if file is None:
            continue
        calls = [node for node in ast.walk(file.tree) if isinstance(node, ast.Call)]
        trains = any(_called(call) == source.training_call for call in calls)
        if trains and _is_main(file):
            scripts.append(path)
        for call in calls:
            _follow_provider(interpreter, call, file, source, trains=trains)
    return tuple(scripts)


def _called(call: ast.Call) -> str:
    function = call.func
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def _is_main(file: SourceFile) -> bool:
    return any(isinstance(node, ast.If) and "__main__" in ast.unparse(node.test) for node in file.tree.body)


def _follow_provider(
    interpreter: Interpreter, call: ast.Call, file: SourceFile, source: ParserSource, *, trains: bool
) -> None:
    """Follow the function that a call hands on to add arguments, in the scope of the function around the call."""
    words = [word.value for word in call.keywords if word.arg == source.provider_argument]
    if trains and not words and _called(call) == source.positional_call:
        words = list(call.args[:1])
    is_parser = "parse_args" in _called(call)
    if not words or not (trains or is_parser):
        return
    value = interpreter.value(words[0], _scope_around(interpreter, call, file), file)
    if isinstance(value, FunctionValue):
        interpreter.found.providers.append(f"{value.file.path}:{value.name}")
        interpreter.follow(value, [ParserValue()], {})


def _scope_around(interpreter: Interpreter, call: ast.Call, file: SourceFile) -> tuple[dict[str, object], ...]:
    """Return the local names of the functions around a call, from their plain assignments and definitions."""
    scopes: list[dict[str, object]] = [{}]
    around = [
        node
        for node in ast.walk(file.tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and any(each is call for each in ast.walk(node))
    ]
    for function in around:
        scope: dict[str, object] = {each.arg: None for each in function.args.args}
        scopes.append(scope)
        for node in ast.walk(function):
            if isinstance(node, ast.FunctionDef) and node is not function:
                scope.setdefault(node.name, FunctionValue(node, file, tuple(scopes)))
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                scope.update(interpreter.modules.imported(node, file))
            elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                value = interpreter.value(node.value, tuple(scopes), file)
                if not isinstance(value, Unknown):
                    scope[node.targets[0].id] = value
    return tuple(scopes)


def _nothing(checkout: Checkout, source: ParserSource) -> CheckoutRefused:
    broken = {path: why for path, why in checkout.unreadable.items() if any(path.endswith(end) for end in source.files)}
    if broken:
        path, why = next(iter(broken.items()))
        return CheckoutRefused(f"the file of its parser {why}", f"{checkout.root}/{path}")
    if source.feature_method:
        message = f"{NOTHING}: looked for {', '.join((*source.files, source.features[0]))}"
        return CheckoutRefused(message, str(checkout.root))
    message = (
        f"{NOTHING}: looked for {', '.join(source.files)}, and for scripts that call {source.training_call}(…) "
        f"with {source.provider_argument}"
    )
    return CheckoutRefused(message, str(checkout.root), ("the folder of the checkout itself, with its submodules",))
