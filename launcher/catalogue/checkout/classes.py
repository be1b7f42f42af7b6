"""Reads Python source by `ast`: classes, their inheritance and fields, without importing the package."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import Any

from launcher.catalogue.checkout.files import Checkout
from launcher.records import dataclass

_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}


_LARGEST, _LARGEST_POWER = 1e15, 64


class Unknown(Exception):
    """An expression whose value is only known at run time."""


def evaluate(node: ast.AST, names: dict[str, ast.expr] | None = None) -> Any:
    """Return the value of a constant expression; names are looked up in `names` (module-level assignments).

    Raises:
        Unknown: the expression needs running.
    """
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return [evaluate(item, names) for item in node.elts]
    if isinstance(node, ast.Dict) and all(key is not None for key in node.keys):
        pairs = zip(node.keys, node.values, strict=True)
        return {evaluate(key, names): evaluate(value, names) for key, value in pairs if key is not None}
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -evaluate(node.operand, names)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = evaluate(node.left, names), evaluate(node.right, names)
        if not _is_small(node.op, left, right):
            raise Unknown(ast.unparse(node))
        return _OPERATORS[type(node.op)](left, right)
    if isinstance(node, ast.Name) and names and node.id in names:
        return evaluate(names[node.id], {key: value for key, value in names.items() if key != node.id})
    raise Unknown(ast.unparse(node))


def _is_small(op: ast.operator, left: Any, right: Any) -> bool:
    """Return whether a result is small enough to compute: a checkout's expressions are anybody's."""
    if isinstance(op, ast.Add):
        return type(left) is type(right)
    numbers = all(isinstance(each, (int, float)) and abs(each) <= _LARGEST for each in (left, right))
    if isinstance(op, (ast.Div, ast.FloorDiv)) and numbers:
        return bool(right)
    return numbers and not (isinstance(op, ast.Pow) and abs(right) > _LARGEST_POWER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One parsed source file; `path` is relative to the root that it was found under."""

    path: str
    tree: ast.Module

    def constants(self) -> dict[str, ast.expr]:
        """Return the module-level assignments by name."""
        found: dict[str, ast.expr] = {}
        for node in self.tree.body:
            if isinstance(node, ast.Assign):
                found.update({target.id: node.value for target in node.targets if isinstance(target, ast.Name)})
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
                found[node.target.id] = node.value
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassSource:
    """A class definition and its file."""

    node: ast.ClassDef
    module: Module

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def bases(self) -> list[str]:
        """The names of the base classes, as written, last part only."""
        return [ast.unparse(base).rpartition(".")[2] for base in self.node.bases]

    @property
    def is_dataclass(self) -> bool:
        return any("dataclass" in ast.unparse(mark) for mark in self.node.decorator_list)

    def at(self, node: ast.stmt | ast.expr | ast.arg) -> str:
        """Return `file:line` of something in this class."""
        return f"{self.module.path}:{node.lineno}"


@dataclass(kw_only=True)
class Package:
    """The source files below some folders (or some single files) of a checkout or an installed package.

    Attributes:
        missing_bases: base classes that are outside of the folders.
        parsed: the files, already read; None: they are read from the folders.
    """

    root: Path
    folders: tuple[str, ...]
    missing_bases: set[str] = field(default_factory=set)
    parsed: list[Module] | None = None

    @classmethod
    def of_checkout(cls, checkout: Checkout, folders: tuple[str, ...]) -> Package:
        """Return the files below folders of a checkout that can be read; the others are in its `unreadable`."""
        chosen = [path for path in checkout.paths if path.startswith(tuple(f"{folder}/" for folder in folders))]
        files = [file for path in chosen if (file := checkout.file(path)) is not None]
        parsed = [Module(path=file.path, tree=file.tree) for file in files]
        return cls(root=checkout.root, folders=folders, parsed=parsed)

    @cached_property
    def modules(self) -> list[Module]:
        if self.parsed is not None:
            return self.parsed
        places = [self.root / folder for folder in self.folders]
        files = [[place] if place.is_file() else sorted(place.rglob("*.py")) for place in places]
        return [self.module(path) for group in files for path in group]

    def module(self, path: Path) -> Module:
        text = path.read_text(encoding="utf-8")
        return Module(path=path.relative_to(self.root).as_posix(), tree=ast.parse(text))

    @cached_property
    def classes(self) -> dict[str, list[ClassSource]]:
        found: dict[str, list[ClassSource]] = {}
        for module in self.modules:
            for node in ast.walk(module.tree):
                if isinstance(node, ast.ClassDef):
                    found.setdefault(node.name, []).append(ClassSource(node=node, module=module))
        return found

    def find(self, name: str, near: Module | None = None) -> ClassSource | None:
        """Return the class of that name; the nearest file to `near` wins where there are several."""
        candidates = self.classes.get(name, [])
        if not candidates:
            return None
        return max(candidates, key=lambda found: _shared(found.module.path, near.path if near else ""))

    def mro(self, name: str, near: Module | None = None) -> list[ClassSource]:
        """Return the class and its ancestors in Python's method resolution order; outside classes are left out.

        Raises:
            LookupError: there is no such class in the package.
        """
        start = self.find(name, near)
        if start is None:
            raise LookupError(f"class {name} not found below {', '.join(self.folders)} in {self.root}")
        parents: list[list[ClassSource]] = []
        for base in start.bases:
            if self.find(base, start.module) is None:
                self.missing_bases.add(base)
            else:
                parents.append(self.mro(base, start.module))
        heads = [chain[0] for chain in parents]
        return [start, *_merge([*parents, heads])]


def _shared(left: str, right: str) -> int:
    parts = zip(left.split("/"), right.split("/"), strict=False)
    count = 0
    for a, b in parts:
        if a != b:
            break
        count += 1
    return count


def _merge(chains: list[list[ClassSource]]) -> Iterator[ClassSource]:
    chains = [list(chain) for chain in chains if chain]
    while chains:
        for chain in chains:
            head = chain[0]
            if not any(head in other[1:] for other in chains):
                break
        else:
            raise ValueError("no consistent method resolution order")
        yield head
        chains = [[item for item in chain if item is not head] for chain in chains]
        chains = [chain for chain in chains if chain]


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSource:
    """One dataclass field: its annotation and default as source nodes."""

    name: str
    annotation: ast.expr
    value: ast.expr | None
    owner: ClassSource
    node: ast.AnnAssign

    @property
    def source(self) -> str:
        return self.owner.at(self.node)

    def call(self) -> ast.Call | None:
        """Return the `field(…)` call of the default, if it is one."""
        node = self.value
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "field":
            return node
        return None

    def default(self) -> Any:
        """Return the default's value; `...` where the field has none.

        Raises:
            Unknown: the default is computed at run time; the message is its source text.
        """
        names = self.owner.module.constants()
        call = self.call()
        if call is None:
            return ... if self.value is None else evaluate(self.value, names)
        given = {arg.arg: arg.value for arg in call.keywords}
        if "default" in given:
            return evaluate(given["default"], names)
        if "default_factory" not in given:
            return ...
        return _made_by(given["default_factory"], names)


def _made_by(factory: ast.expr, names: dict[str, ast.expr]) -> Any:
    if isinstance(factory, ast.Lambda):
        return evaluate(factory.body, names)
    if isinstance(factory, ast.Name) and factory.id in ("list", "dict"):
        return [] if factory.id == "list" else {}
    raise Unknown(f"{ast.unparse(factory)}()")


def dataclass_fields(chain: list[ClassSource]) -> dict[str, FieldSource]:
    """Return the fields of the first class of an MRO, as `dataclasses.fields` orders and overrides them."""
    found: dict[str, FieldSource] = {}
    for owner in reversed(chain):
        if not owner.is_dataclass:
            continue
        for node in owner.node.body:
            if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
                continue
            if "ClassVar" in ast.unparse(node.annotation):
                continue
            name = node.target.id
            entry = FieldSource(name=name, annotation=node.annotation, value=node.value, owner=owner, node=node)
            call = entry.call()
            if call and any(arg.arg == "init" and ast.unparse(arg.value) == "False" for arg in call.keywords):
                continue
            found[name] = entry
    return found
