"""Values of the expressions of a parser's source, without running it."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field

from launcher.catalogue.checkout.files import Checkout, CheckoutRefused, SourceFile
from launcher.catalogue.checkout.found import Found
from launcher.catalogue.checkout.modules import Modules
from launcher.catalogue.checkout.values import (
    ActionRef,
    ChoicesRef,
    ClassValue,
    EnumMember,
    External,
    FunctionValue,
    InstanceValue,
    Method,
    ParserValue,
    Scope,
    Unknown,
    Value,
    binary,
    compared,
    is_plain,
    weight,
)

_MAX_STEPS = 600_000
_MAX_WEIGHT = 10_000


@dataclass(kw_only=True, eq=False)
class Evaluator(ABC):
    """Evaluates expressions of a checkout.

    Attributes:
        provider_argument: keyword argument that passes a function which adds arguments.
        group_class: class that adds a dataclass's fields as arguments, by `build_group`.
        choice_method: method that adds a choice to an argument: (parser, option, choice).
        found: what the source does.
    """

    checkout: Checkout
    provider_argument: str = ""
    group_class: str = ""
    choice_method: str = ""
    found: Found = field(default_factory=Found)
    _steps: int = 0

    def __post_init__(self) -> None:
        self.modules = Modules(self.checkout, self.value)

    @abstractmethod
    def call(self, node: ast.Call, scopes: tuple[Scope, ...], file: SourceFile) -> Value:
        """Return what a call returns; what it adds to a parser is recorded."""

    @abstractmethod
    def bind(self, target: ast.expr, value: Value, scopes: tuple[Scope, ...], file: SourceFile) -> None:
        """Bind the target of an assignment or a loop."""

    def step(self, count: int = 1) -> None:
        """Count work, so that no source can make reading it endless."""
        self._steps += count
        if self._steps > _MAX_STEPS:
            raise CheckoutRefused("its parser takes too many steps to follow", str(self.checkout.root))

    def value(self, node: ast.expr, scopes: tuple[Scope, ...], file: SourceFile) -> Value:
        """Return the value of an expression; Unknown where only running it would give it."""
        self.step()
        if isinstance(node, ast.Constant):
            return node.value if is_plain(node.value) else Unknown(ast.unparse(node))
        if isinstance(node, ast.Name):
            return self._name(node.id, scopes, file)
        if isinstance(node, ast.Call):
            return self.call(node, scopes, file)
        if isinstance(node, ast.Attribute):
            return self.attribute(self.value(node.value, scopes, file), node.attr, ast.unparse(node))
        found = self._display(node, scopes, file)
        return Unknown(ast.unparse(node)) if isinstance(found, Unknown) and not found.text else found

    def _display(self, node: ast.expr, scopes: tuple[Scope, ...], file: SourceFile) -> Value:
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            return self._counted(list(self.items(node.elts, scopes, file)))
        if isinstance(node, ast.Dict):
            return self._counted(self._dict(node, scopes, file))
        if isinstance(node, ast.Lambda):
            return FunctionValue(node, file, scopes)
        if isinstance(node, ast.BinOp):
            return binary(node.op, self.value(node.left, scopes, file), self.value(node.right, scopes, file))
        if isinstance(node, ast.UnaryOp):
            return _unary(node.op, self.value(node.operand, scopes, file))
        if isinstance(node, ast.BoolOp):
            return self._bool(node, scopes, file)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            one, other = (self.value(each, scopes, file) for each in (node.left, node.comparators[0]))
            return compared(node.ops[0], one, other)
        if isinstance(node, ast.IfExp):
            test = self.value(node.test, scopes, file)
            return (
                Unknown() if isinstance(test, Unknown) else self.value(node.body if test else node.orelse, scopes, file)
            )
        if isinstance(node, ast.JoinedStr):
            return self._text(node, scopes, file)
        if isinstance(node, ast.Subscript):
            return _subscript(self.value(node.value, scopes, file), self.value(node.slice, scopes, file))
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)) and len(node.generators) == 1:
            return self._counted(self._comprehension(node, scopes, file))
        if isinstance(node, ast.Starred):
            return self.value(node.value, scopes, file)
        return Unknown()

    def _counted(self, value: Value) -> Value:
        """Return a list or dict whose size counts as work."""
        size = weight(value)
        self.step(size // 4)
        return value if size < _MAX_WEIGHT else Unknown("…")

    def _name(self, name: str, scopes: tuple[Scope, ...], file: SourceFile) -> Value:
        for scope in reversed(scopes):
            if name in scope:
                return scope[name]
        return self.modules.name(name, file)

    def attribute(self, of: Value, name: str, text: str = "") -> Value:
        """Return an attribute of a value."""
        if isinstance(of, External):
            return External(f"{of.name}.{name}")
        if isinstance(of, SourceFile):
            return self.modules.name(name, of)
        if isinstance(of, InstanceValue):
            if name in of.attributes:
                return of.attributes[name]
            if name == "build_group" and any(
                each.node.name == self.group_class for each in self.modules.bases(of.kind)
            ):
                return Method(of, name)
            method = self.modules.method(of.kind, name)
            return Method(of, name) if method is None else FunctionValue(method.node, method.file, (), of)
        if isinstance(of, ClassValue):
            return self.modules.class_attribute(of, name, text)
        if isinstance(of, EnumMember):
            return of.name if name == "name" else of.value if name == "value" else Unknown(text)
        if isinstance(of, ActionRef):
            return ChoicesRef(of.option) if name == "choices" else Unknown(text)
        if isinstance(of, Unknown) or (isinstance(of, ParserValue) and name == "_actions"):
            return Unknown(text)
        return Method(of, name)

    def items(self, nodes: list[ast.expr], scopes: tuple[Scope, ...], file: SourceFile) -> Iterator[Value]:
        for node in nodes:
            value = self.value(node, scopes, file)
            if isinstance(node, ast.Starred) and isinstance(value, (list, tuple, dict)):
                yield from value
            else:
                yield value

    def _dict(self, node: ast.Dict, scopes: tuple[Scope, ...], file: SourceFile) -> Value:
        found: dict[Value, Value] = {}
        for key, item in zip(node.keys, node.values, strict=True):
            value = self.value(item, scopes, file)
            if key is None:
                found.update(value if isinstance(value, dict) else {})
                continue
            name = self.value(key, scopes, file)
            if isinstance(name, (str, int, float, bool)):
                found[name] = value
        return found

    def _bool(self, node: ast.BoolOp, scopes: tuple[Scope, ...], file: SourceFile) -> Value:
        value: Value = Unknown()
        for each in node.values:
            value = self.value(each, scopes, file)
            if isinstance(value, Unknown) or bool(value) is isinstance(node.op, ast.Or):
                return value
        return value

    def _text(self, node: ast.JoinedStr, scopes: tuple[Scope, ...], file: SourceFile) -> Value:
        found: list[str] = []
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                value = self.value(part.value, scopes, file)
                if part.format_spec is not None or not isinstance(value, (str, int, float)):
                    return Unknown()
                found.append(str(value))
            else:
                found.append(str(self.value(part, scopes, file)))
        return self._counted("".join(found))

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp, scopes: tuple[Scope, ...], file: SourceFile
    ) -> Value:
        loop = node.generators[0]
        items = self.modules.members(self.value(loop.iter, scopes, file))
        if not isinstance(items, (list, tuple, dict)):
            return Unknown()
        found: list[Value] = []
        inner = (*scopes, {})
        for item in items:
            self.bind(loop.target, item, inner, file)
            tests = [self.value(test, inner, file) for test in loop.ifs]
            if any(isinstance(test, Unknown) for test in tests):
                return Unknown()
            if all(tests):
                found.append(self.value(node.elt, inner, file))
        return found


def _unary(kind: ast.unaryop, value: Value) -> Value:
    if isinstance(value, Unknown):
        return Unknown()
    if isinstance(kind, ast.Not):
        return not value
    return -value if isinstance(kind, ast.USub) and isinstance(value, (int, float)) else Unknown()


def _subscript(of: Value, key: Value) -> Value:
    try:
        found = of[key] if isinstance(of, (list, tuple, dict)) and is_plain(key) else Unknown()
    except (KeyError, IndexError, TypeError):
        return Unknown()
    return found
