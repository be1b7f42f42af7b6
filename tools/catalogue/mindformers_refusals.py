"""Conditions under which MindFormers' pynative trainer raises, read from its source as expressions over keys."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from launcher.catalogue.checkout.classes import ClassSource, Package, evaluate
from launcher.catalogue.conditions import is_condition

_TRUE = ast.Constant(value=True)


@dataclass(frozen=True, slots=True)
class Refusal:
    """One `raise`: the condition that leads to it; `text` is empty where it is no expression over keys."""

    text: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltValue:
    """A value that is looked up when the trainer is built, after its configuration was read.

    Attributes:
        when: condition over keys of the section under which it is looked up.
        function: function that compares it, or mapping at module level whose keys are its values.
        variable: its name in the function.
    """

    section: str
    key: str
    when: str
    file: str
    function: str
    variable: str


BUILT = (
    BuiltValue(
        section="parallelism",
        key="context_parallel_method",
        when="context_parallel > 1",
        file="distributed/context_parallel.py",
        function="_validate_cp_method",
        variable="cp_method",
    ),
    BuiltValue(
        section="parallelism",
        key="pipeline_parallel_schedule",
        when="pipeline_parallel > 1",
        file="distributed/pipeline_parallel.py",
        function="_SCHEDULE_REGISTRY",
        variable="",
    ),
    # Read for every model that is distributed (base_models/gpt/parallelize.py:1396 @2.1.0).
    BuiltValue(
        section="parallelism",
        key="reshard_after_forward_policy",
        when="",
        file="distributed/fsdp.py",
        function="get_fsdp_reshard_after_forward_policy",
        variable="reshard_after_forward_policy",
    ),
    BuiltValue(
        section="parallelism",
        key="moe_token_dispatcher_type",
        when="expert_parallel > 1",
        file="base_models/gpt/parallelize.py",
        function="apply_moe_ep_tp",
        variable="moe_token_dispatcher_type",
    ),
)


def of_method(owner: ClassSource, name: str) -> Iterator[Refusal]:
    """Yield the refusals of a class's own method, over its parameters or the fields of the class."""
    methods = {node.name: node for node in owner.node.body if isinstance(node, ast.FunctionDef)}
    body = methods[name].body if name in methods else []
    for condition, line in _Walk(methods=methods).block(body, []):
        text = "" if condition is None else ast.unparse(ast.fix_missing_locations(condition))
        yield Refusal(text if text and is_condition(text) else "", f"{owner.module.path}:{line}")


class _Walk:
    """Follows the statements of a function and of the methods that it calls without arguments."""

    def __init__(self, *, methods: dict[str, ast.FunctionDef]) -> None:
        self.methods = methods
        self.aliases: dict[str, ast.expr] = {}

    def block(self, body: list[ast.stmt], path: list[ast.expr | None]) -> Iterator[tuple[ast.expr | None, int]]:
        """Yield condition and line of each `raise`; None: no expression over keys leads to it."""
        for node in body:
            if isinstance(node, ast.If):
                test = self._plain(node.test)
                yield from self.block(node.body, [*path, test])
                yield from self.block(node.orelse, [*path, ast.UnaryOp(op=ast.Not(), operand=test)])
                if any(isinstance(each, ast.Return) for each in ast.walk(node)):
                    path = [*path, None]  # what follows is reached under conditions that are not followed
            elif isinstance(node, ast.Raise):
                yield _all_of(path), node.lineno
            elif isinstance(node, ast.Assign) and len(node.targets) == 1:
                self._assign(node.targets[0], self._plain(node.value))
            elif isinstance(node, ast.Expr) and (method := self._called(node.value)) is not None:
                yield from self.block(method.body, path)
            else:
                yield from ((None, each.lineno) for each in ast.walk(node) if isinstance(each, ast.Raise))

    def _called(self, node: ast.expr) -> ast.FunctionDef | None:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args:
            return self.methods.get(node.func.attr) if ast.unparse(node.func.value) == "self" else None
        return None

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self.aliases[target.id] = value
        elif isinstance(target, ast.Tuple):
            for at, each in enumerate(target.elts):
                if isinstance(each, ast.Name):
                    index = ast.Subscript(value=value, slice=ast.Constant(value=at), ctx=ast.Load())
                    self.aliases[each.id] = index

    def _plain(self, node: ast.expr) -> ast.expr:
        """Return the expression with `self.x` as `x`, and local names as what they were assigned."""
        found = _Names(self.aliases).visit(ast.parse(ast.unparse(node), mode="eval").body)
        assert isinstance(found, ast.expr)
        return found


class _Names(ast.NodeTransformer):
    def __init__(self, aliases: dict[str, ast.expr]) -> None:
        self.aliases = aliases

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            return ast.Name(id=node.attr, ctx=ast.Load())
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self.aliases.get(node.id, node)


def _all_of(path: list[ast.expr | None]) -> ast.expr | None:
    known = [each for each in path if each is not None]
    if len(known) != len(path):
        return None
    if not path:
        return _TRUE
    return known[0] if len(known) == 1 else ast.BoolOp(op=ast.And(), values=known)


def of_built_values(package: Package, folder: str) -> Iterator[tuple[BuiltValue, Refusal]]:
    """Yield the refusal of each value that the trainer looks up when it is built; a version may have none.

    Args:
        folder: the trainer's, below the package's root.
    """
    for built in BUILT:
        path = package.root / folder / built.file
        if not path.is_file():
            continue
        module = package.module(path)
        constants = module.constants()
        if built.function in constants:
            table = constants[built.function]
            assert isinstance(table, ast.Dict)
            # Names are in lower case before they are looked up (distributed/pipeline_parallel.py:302 @2.1.0).
            allowed, folded, line = [evaluate(key) for key in table.keys if key is not None], True, table.lineno
        else:
            functions = [node for node in ast.walk(module.tree) if isinstance(node, ast.FunctionDef)]
            function = next((node for node in functions if node.name == built.function), None)
            if function is None:
                continue
            allowed, line = compared(function, built.variable)
            text = ast.unparse(function)
            folded = f"{built.variable} or" in text or f"{built.variable}.lower" in text
        value = f"{built.key}.lower()" if folded else built.key
        parts = [built.when, built.key if folded else "", f"{value} not in {tuple(allowed)!r}"]
        yield built, Refusal(" and ".join(filter(None, parts)), f"{module.path}:{line}")


def compared(function: ast.AST, variable: str) -> tuple[list[str], int]:
    """Return the texts that a function compares a variable with, by `==`, `in` and `not in`, and the first line."""
    found: dict[str, int] = {}
    for node in ast.walk(function):
        if not isinstance(node, ast.Compare) or ast.unparse(node.left) != variable:
            continue
        for op, other in zip(node.ops, node.comparators, strict=True):
            if isinstance(op, (ast.Eq, ast.In, ast.NotIn)):
                values = evaluate(other)
                for each in values if isinstance(values, (list, tuple)) else [values]:
                    found.setdefault(str(each), node.lineno)
    return list(found), min(found.values(), default=0)
