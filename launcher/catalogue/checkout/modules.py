"""Names of the modules and classes of a checkout: what they are bound to, without importing them."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterator

from launcher.catalogue.checkout.files import Checkout, SourceFile
from launcher.catalogue.checkout.values import (
    ClassValue,
    EnumMember,
    External,
    FunctionValue,
    Scope,
    Unknown,
    Value,
)

Evaluate = Callable[[ast.expr, tuple[Scope, ...], SourceFile], Value]

_ENUMS = frozenset({"Enum", "IntEnum", "StrEnum", "Flag", "IntFlag"})
_MAX_BASES = 20


class Modules:
    """Looks names up in the modules of a checkout."""

    def __init__(self, checkout: Checkout, evaluate: Evaluate) -> None:
        self.checkout, self.evaluate = checkout, evaluate
        self._names: dict[str, Scope] = {}
        self._statements: dict[str, dict[str, list[ast.stmt]]] = {}
        self._pending: set[tuple[str, str]] = set()

    def name(self, name: str, file: SourceFile) -> Value:
        """Return what a name is bound to at the top level of a module; else a built-in, or Unknown."""
        known = self._names.setdefault(file.path, {})
        if name in known:
            return known[name]
        if (file.path, name) in self._pending:
            return Unknown(name)
        self._pending.add((file.path, name))
        try:
            found = self._bound(name, file)
        finally:
            self._pending.discard((file.path, name))
        known[name] = found
        return found

    def _bound(self, name: str, file: SourceFile) -> Value:
        statements = self._of(file).get(name, [])
        value: Value = Unknown(name)
        for node in statements:
            found = self._from(node, name, file)
            if not isinstance(found, Unknown):
                value = found
        if statements:
            return value
        for star in self._of(file).get("*", []):
            assert isinstance(star, ast.ImportFrom)
            other = self._module(star, file)
            if other is not None:
                found = self.name(name, other)
                if not isinstance(found, (Unknown, External)):
                    return found
        return External(name) if hasattr(builtins, name) else Unknown(name)

    def _from(self, node: ast.stmt, name: str, file: SourceFile) -> Value:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return FunctionValue(node, file)
        if isinstance(node, ast.ClassDef):
            return ClassValue(node, file)
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            return self.imported(node, file).get(name, Unknown(name))
        value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        return Unknown(name) if value is None else self.evaluate(value, ({},), file)

    def _of(self, file: SourceFile) -> dict[str, list[ast.stmt]]:
        """Return the statements that bind names at the top level of a module, also in `if`, `try` and `with`."""
        if file.path not in self._statements:
            found: dict[str, list[ast.stmt]] = {}
            for node in _top_level(file.tree.body):
                for name in _bound_names(node):
                    found.setdefault(name, []).append(node)
            self._statements[file.path] = found
        return self._statements[file.path]

    def imported(self, node: ast.Import | ast.ImportFrom, file: SourceFile) -> Scope:
        """Return the names that an import statement binds."""
        if isinstance(node, ast.Import):
            return {
                (each.asname or each.name.partition(".")[0]): self._imported_module(each, file) for each in node.names
            }
        module = self._module(node, file)
        found: Scope = {}
        for each in node.names:
            if each.name == "*":
                continue
            value: Value = Unknown(each.name) if module is None else self.name(each.name, module)
            if isinstance(value, Unknown):
                dotted = f"{node.module or ''}.{each.name}".strip(".")
                path = self.checkout.module(dotted, file.path, node.level)
                inner = None if path is None else self.checkout.file(path)
                outside = module is None and node.level == 0
                value = inner if inner is not None else External(dotted) if outside else value
            found[each.asname or each.name] = value
        return found

    def _imported_module(self, each: ast.alias, file: SourceFile) -> Value:
        if each.asname is None:
            return External(each.name.partition(".")[0])
        path = self.checkout.module(each.name, file.path)
        inner = None if path is None else self.checkout.file(path)
        return External(each.name) if inner is None else inner

    def _module(self, node: ast.ImportFrom, file: SourceFile) -> SourceFile | None:
        path = self.checkout.module(node.module or "", file.path, node.level)
        return None if path is None else self.checkout.file(path)

    # -- classes

    def bases(self, kind: ClassValue) -> list[ClassValue]:
        """Return the classes of the checkout that a class inherits from, nearest first, itself first of all."""
        found: list[ClassValue] = []
        todo = [kind]
        while todo and len(found) < _MAX_BASES:
            each = todo.pop(0)
            if any(known.node is each.node for known in found):
                continue
            found.append(each)
            values = (self.evaluate(base, ({},), each.file) for base in each.node.bases)
            todo += [value for value in values if isinstance(value, ClassValue)]
        return found

    def method(self, kind: ClassValue, name: str) -> FunctionValue | None:
        """Return a method of a class or of those that it inherits from."""
        for each in self.bases(kind):
            for node in each.node.body:
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name:
                    return FunctionValue(node, each.file)
        return None

    def class_attribute(self, kind: ClassValue, name: str, text: str) -> Value:
        """Return an attribute of a class: a member of an enumeration, a constant, or a static method."""
        for each in self.bases(kind):
            for node in each.node.body:
                if isinstance(node, ast.Assign) and name in _bound_names(node):
                    value = self.evaluate(node.value, ({},), each.file)
                    return EnumMember(each.node.name, name, value) if self.is_enum(each) else value
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name:
                    return FunctionValue(node, each.file)
        return Unknown(text)

    def is_enum(self, kind: ClassValue) -> bool:
        """Return whether a class is an enumeration."""
        return any(
            ast.unparse(base).rpartition(".")[2] in _ENUMS for each in self.bases(kind) for base in each.node.bases
        )

    def is_parser(self, kind: ClassValue) -> bool:
        """Return whether a class is an argument parser of the checkout's own."""
        names = (ast.unparse(base).rpartition(".")[2] for each in self.bases(kind) for base in each.node.bases)
        return "ArgumentParser" in names

    def members(self, value: Value) -> Value:
        """Return the members of an enumeration as a list; any other value as it is."""
        if not (isinstance(value, ClassValue) and self.is_enum(value)):
            return value
        names = [name for node in value.node.body if isinstance(node, ast.Assign) for name in _bound_names(node)]
        return [self.class_attribute(value, name, name) for name in names]


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        if isinstance(node, ast.If):
            yield from _top_level([*node.body, *node.orelse])
        elif isinstance(node, ast.Try):
            handled = [each for handler in node.handlers for each in handler.body]
            yield from _top_level([*handled, *node.body, *node.orelse, *node.finalbody])
        elif isinstance(node, ast.With):
            yield from _top_level(node.body)
        else:
            yield node


def _bound_names(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, ast.Import):
        return [each.asname or each.name.partition(".")[0] for each in node.names]
    if isinstance(node, ast.ImportFrom):
        return [each.asname or each.name for each in node.names]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]
