"""Follows the source of a parser: which `add_argument` calls are reached, and with which constants.

Nothing is executed: calls of functions of the checkout are followed, all others give Unknown. Of a condition that is
not a constant both branches count; a loop over what is not known is followed once.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from launcher.catalogue.checkout.expressions import Evaluator
from launcher.catalogue.checkout.files import SourceFile
from launcher.catalogue.checkout.found import Call, Change
from launcher.catalogue.checkout.values import (
    ActionRef,
    ChoicesRef,
    ClassValue,
    External,
    FunctionValue,
    InstanceValue,
    Method,
    ParserValue,
    Scope,
    Unknown,
    Value,
    binary,
    called_builtin,
    called_method,
    is_plain,
    weight,
)

_MAX_DEPTH = 60
# A function without a parser among its arguments is followed if it is as short as this, or adds arguments itself.
_SHORT = 15
_OF_CHOICE = 3
OF_PARSERS = frozenset({"add_argument", "add_argument_group", "ArgumentParser"})


@dataclass(slots=True)
class _Return:
    value: Value


Signal = _Return | str | None
"""How a block ended: with a return, "break", "continue", or at its end."""


@dataclass(kw_only=True, eq=False)
class Interpreter(Evaluator):
    """Follows functions of a checkout.

    Attributes:
        add_dataclass: adds the fields of the class that an ArgumentGroupFactory is made for, to a group of this title.
    """

    add_dataclass: Callable[[Interpreter, InstanceValue, str], None] | None = None
    _stack: list[FunctionValue] = field(default_factory=list)
    _adds: dict[ast.AST, bool] = field(default_factory=dict)

    # -- functions

    def follow(self, function: FunctionValue, args: list[Value], kwargs: Mapping[str, Value]) -> Value:
        """Return what a function of the checkout returns; what it adds to a parser is recorded."""
        if len(self._stack) >= _MAX_DEPTH or any(each.node is function.node for each in self._stack[-8:]):
            return Unknown()
        if function.bound is not None:
            args = [function.bound, *args]
        scope = self._bound(function, args, kwargs)
        self._stack.append(function)
        try:
            scopes = (*function.scopes, scope)
            if isinstance(function.node, ast.Lambda):
                return self.value(function.node.body, scopes, function.file)
            ended = self.block(function.node.body, scopes, function.file)
        finally:
            self._stack.pop()
        return ended.value if isinstance(ended, _Return) else None

    def _bound(self, function: FunctionValue, args: list[Value], kwargs: Mapping[str, Value]) -> Scope:
        names = function.node.args
        scope: Scope = {}
        positional = [*names.posonlyargs, *names.args]
        outer = function.scopes
        for each, default in zip(reversed(positional), reversed(names.defaults), strict=False):
            scope[each.arg] = self.value(default, outer, function.file)
        for each, given in zip(names.kwonlyargs, names.kw_defaults, strict=True):
            scope[each.arg] = Unknown() if given is None else self.value(given, outer, function.file)
        for each in positional:
            scope.setdefault(each.arg, Unknown())
        scope.update({each.arg: value for each, value in zip(positional, args, strict=False)})
        if names.vararg is not None:
            scope[names.vararg.arg] = list(args[len(positional) :])
        known = {each.arg for each in (*positional, *names.kwonlyargs)}
        scope.update({name: value for name, value in kwargs.items() if name in known})
        if names.kwarg is not None:
            scope[names.kwarg.arg] = {name: value for name, value in kwargs.items() if name not in known}
        return scope

    def _worth(self, function: FunctionValue, args: list[Value], kwargs: Mapping[str, Value]) -> bool:
        """Return whether to follow a call: it may add arguments, or is short enough to only compute something."""
        given = (*args, *kwargs.values(), function.bound)
        if any(isinstance(each, (ParserValue, FunctionValue, ActionRef)) for each in given):
            return True
        node = function.node
        if node not in self._adds:
            inside = list(ast.walk(node))
            adds = any(isinstance(each, ast.Attribute) and each.attr in OF_PARSERS for each in inside)
            self._adds[node] = adds or sum(isinstance(each, ast.stmt) for each in inside) <= _SHORT
        return self._adds[node]

    # -- statements

    def block(self, body: list[ast.stmt], scopes: tuple[Scope, ...], file: SourceFile) -> Signal:
        """Follow statements; returns how they ended."""
        for node in body:
            self.step()
            ended = self._statement(node, scopes, file)
            if ended is not None:
                return ended
        return None

    def _statement(self, node: ast.stmt, scopes: tuple[Scope, ...], file: SourceFile) -> Signal:
        scope = scopes[-1]
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            scope[node.name] = FunctionValue(node, file, scopes)
        elif isinstance(node, ast.ClassDef):
            scope[node.name] = ClassValue(node, file)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            scope.update(self.modules.imported(node, file))
        elif isinstance(node, ast.Expr):
            self.value(node.value, scopes, file)
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            self._assign(node, scopes, file)
        elif isinstance(node, ast.Return):
            return _Return(None if node.value is None else self.value(node.value, scopes, file))
        elif isinstance(node, ast.Raise):
            return _Return(Unknown())
        elif isinstance(node, (ast.Break, ast.Continue)):
            return "break" if isinstance(node, ast.Break) else "continue"
        else:
            return self._compound(node, scopes, file)
        return None

    def _compound(self, node: ast.stmt, scopes: tuple[Scope, ...], file: SourceFile) -> Signal:
        if isinstance(node, ast.If):
            return self._if(node, scopes, file)
        if isinstance(node, (ast.For, ast.AsyncFor)):
            return self._for(node, scopes, file)
        if isinstance(node, ast.While):
            ended = self.block(node.body, scopes, file)
            return ended if isinstance(ended, _Return) else None
        if isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                opened = self.value(item.context_expr, scopes, file)
                if item.optional_vars is not None:
                    self.bind(item.optional_vars, opened, scopes, file)
            return self.block(node.body, scopes, file)
        if isinstance(node, ast.Try):
            return self.block([*node.body, *node.orelse, *node.finalbody], scopes, file)
        if isinstance(node, ast.Match):
            for case in node.cases:
                self.block(case.body, scopes, file)
        return None

    def _if(self, node: ast.If, scopes: tuple[Scope, ...], file: SourceFile) -> Signal:
        action = self._looked_up(node.test, scopes, file)
        if action is not None:
            name, option = action
            scopes[-1][name] = ActionRef(option)
            self.block(node.body, scopes, file)
            return None
        test = self.value(node.test, scopes, file)
        if not isinstance(test, Unknown):
            return self.block(node.body if test else node.orelse, scopes, file)
        before = dict(scopes[-1])
        one = self.block(node.body, scopes, file)
        after = dict(scopes[-1])
        other = self.block(node.orelse, scopes, file) if node.orelse else None
        for name in before:
            if before[name] is not after.get(name) and is_plain(before[name]) and before[name] != after.get(name):
                scopes[-1][name] = Unknown(name)
        if isinstance(one, _Return) and isinstance(other, _Return):
            return one if not isinstance(one.value, Unknown) else other
        return None

    def _looked_up(self, test: ast.expr, scopes: tuple[Scope, ...], file: SourceFile) -> tuple[str, str] | None:
        """Return variable and option of `"--x" in action.option_strings`, where the action is not known."""
        if not (isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.In)):
            return None
        where = test.comparators[0]
        if not (
            isinstance(where, ast.Attribute) and where.attr == "option_strings" and isinstance(where.value, ast.Name)
        ):
            return None
        option = self.value(test.left, scopes, file)
        return (where.value.id, option) if isinstance(option, str) else None

    def _for(self, node: ast.For | ast.AsyncFor, scopes: tuple[Scope, ...], file: SourceFile) -> Signal:
        items = self.value(node.iter, scopes, file)
        known = isinstance(items, (list, tuple, dict, str))
        for item in items if known else (Unknown(ast.unparse(node.target)),):
            self.step()
            self.bind(node.target, item, scopes, file)
            ended = self.block(node.body, scopes, file)
            if isinstance(ended, _Return) and known:
                return ended
            if ended == "break" and known:
                return None
        return self.block(node.orelse, scopes, file)

    def _assign(
        self, node: ast.Assign | ast.AnnAssign | ast.AugAssign, scopes: tuple[Scope, ...], file: SourceFile
    ) -> None:
        if node.value is None:
            return
        value = self.value(node.value, scopes, file)
        if isinstance(node, ast.AugAssign):
            value = binary(node.op, self.value(node.target, scopes, file), value)
        for target in node.targets if isinstance(node, ast.Assign) else (node.target,):
            self.bind(target, value, scopes, file)

    def bind(self, target: ast.expr, value: Value, scopes: tuple[Scope, ...], file: SourceFile) -> None:
        if isinstance(target, ast.Name):
            scopes[-1][target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            items = value if isinstance(value, (list, tuple)) and len(value) == len(target.elts) else None
            for index, each in enumerate(target.elts):
                self.bind(each, Unknown(ast.unparse(each)) if items is None else items[index], scopes, file)
        elif isinstance(target, ast.Attribute):
            of = self.value(target.value, scopes, file)
            if isinstance(of, InstanceValue):
                of.attributes[target.attr] = value
            elif isinstance(of, ActionRef):
                self._change(of.option, target.attr, value, target, file)
        elif isinstance(target, ast.Subscript):
            of = self.value(target.value, scopes, file)
            key = self.value(target.slice, scopes, file)
            if isinstance(of, dict) and isinstance(key, (str, int)):
                of[key] = value

    def _change(self, option: str, what: str, value: Value, node: ast.expr, file: SourceFile) -> None:
        self.found.events.append(Change(option=option, what=what, value=value, where=f"{file.path}:{node.lineno}"))

    # -- calls

    def call(self, node: ast.Call, scopes: tuple[Scope, ...], file: SourceFile) -> Value:
        function = self.value(node.func, scopes, file)
        args = list(self.items(node.args, scopes, file))
        kwargs: dict[str, Value] = {}
        for each in node.keywords:
            value = self.value(each.value, scopes, file)
            if each.arg is not None:
                kwargs[each.arg] = value
            elif isinstance(value, dict):
                kwargs.update({str(name): item for name, item in value.items()})
        where = f"{file.path}:{node.lineno}"
        self._provided(function, kwargs)
        if self._adds_choice(node, args):
            self._change(str(args[1]), "choice", args[2], node, file)
            return None
        if isinstance(function, Method) and isinstance(function.of, ParserValue):
            return self._of_parser(function.of, function.name, args, kwargs, node, where)
        if isinstance(function, Method) and isinstance(function.of, ChoicesRef):
            if function.name in ("append", "extend", "add") and args:
                what = "choices+" if function.name == "extend" else "choice"
                self._change(function.of.option, what, args[0], node, file)
            return None
        if isinstance(function, Method) and isinstance(function.of, list) and function.name in ("append", "extend"):
            if args:
                function.of.extend([args[0]] if function.name == "append" or not isinstance(args[0], list) else args[0])
                self.step(weight(function.of) // 4)
            return None
        if isinstance(function, Method):
            return self._method(function, args, kwargs, ast.unparse(node))
        if isinstance(function, FunctionValue):
            return self.follow(function, args, kwargs) if self._worth(function, args, kwargs) else Unknown()
        if isinstance(function, ClassValue):
            return self._instance(function, args, kwargs)
        if isinstance(function, External):
            return self._outside(function, args, kwargs, where, ast.unparse(node))
        return Unknown(ast.unparse(node))

    def _adds_choice(self, node: ast.Call, args: list[Value]) -> bool:
        named = isinstance(node.func, ast.Attribute) and node.func.attr == self.choice_method
        return named and len(args) == _OF_CHOICE and isinstance(args[0], ParserValue) and isinstance(args[1], str)

    def _provided(self, function: Value, kwargs: Mapping[str, Value]) -> None:
        """Follow a function that a call hands on to add further arguments."""
        provider = kwargs.get(self.provider_argument)
        if isinstance(provider, FunctionValue):
            if isinstance(function, External):
                self.found.extended = function.name
            self.found.providers.append(f"{provider.file.path}:{provider.name}")
            self.follow(provider, [ParserValue()], {})

    def _method(self, method: Method, args: list[Value], kwargs: Mapping[str, Value], text: str) -> Value:
        if isinstance(method.of, InstanceValue) and method.name == "build_group" and self.add_dataclass is not None:
            title = args[1] if len(args) > 1 else kwargs.get("title", "")
            self.add_dataclass(self, method.of, title if isinstance(title, str) else "")
            return ParserValue(title if isinstance(title, str) else "")
        found = called_method(method.of, method.name, args)
        return Unknown(text) if isinstance(found, Unknown) else found

    def _instance(self, kind: ClassValue, args: list[Value], kwargs: Mapping[str, Value]) -> Value:
        if self.modules.is_parser(kind):
            return ParserValue()
        made = InstanceValue(kind, tuple(args), dict(kwargs))
        start = self.modules.method(kind, "__init__")
        if start is not None and kind.node.name != self.group_class:
            function = FunctionValue(start.node, start.file, (), made)
            if self._worth(function, args, kwargs):
                self.follow(function, args, kwargs)
        return made

    def _outside(
        self, function: External, args: list[Value], kwargs: Mapping[str, Value], where: str, text: str
    ) -> Value:
        if function.last == "ArgumentParser":
            return ParserValue()
        if function.last == "ArgumentGroupFactory" or function.last == self.group_class:
            return Unknown(text)
        given = [each for each in (*args, *kwargs.values()) if isinstance(each, ParserValue)]
        if given and function.name not in ("vars", "isinstance", "getattr", "hasattr", "id", "print", "type"):
            self.found.outside[function.name] = where
            return given[0]
        if function.name in ("os.getenv", "os.environ.get") and len(args) > 1:
            return args[1]  # without the variable
        if function.name == "getattr" and len(args) > 1 and isinstance(args[1], str):
            return self.attribute(args[0], args[1], text)
        if args and isinstance(args[0], ClassValue):
            args = [self.modules.members(args[0]), *args[1:]]
        found = called_builtin(function.name, args, kwargs)
        if isinstance(found, Unknown) and function.name == "list" and len(args) == 1 and isinstance(args[0], list):
            return args[0]
        return Unknown(text) if isinstance(found, Unknown) else found

    def _of_parser(
        self, parser: ParserValue, name: str, args: list[Value], kwargs: dict[str, Value], node: ast.Call, where: str
    ) -> Value:
        if name in ("add_argument_group", "add_mutually_exclusive_group"):
            title = kwargs.get("title", args[0] if args else "")
            return ParserValue(title if isinstance(title, str) and title else parser.group)
        if name == "set_defaults":
            for dest, value in kwargs.items():
                self.found.events.append(Change(option=dest, what="default_of_dest", value=value, where=where))
        if name == "add_argument":
            options = tuple(each for each in args if isinstance(each, str))
            if len(options) < len(args) or not options:
                self.found.unread[where] = ast.unparse(node)[:200]
            if options and all(option.startswith("-") for option in options):
                texts = {each.arg: ast.unparse(each.value) for each in node.keywords if each.arg is not None}
                owner = next((each.name for each in reversed(self._stack) if each.name != "<lambda>"), "")
                self.found.events.append(
                    Call(options=options, kwargs=kwargs, texts=texts, group=parser.group, owner=owner, where=where)
                )
        return Unknown(ast.unparse(node)[:200])
