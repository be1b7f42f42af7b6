"""What a recipe of Megatron-Bridge or NeMo sets, read from the syntax trees of its functions; nothing is executed.

Followed are assignments to the configuration (`cfg.model.num_layers = 2`), keywords of its classes, and functions of
the same tree that return or change one. What an `if` on something else than a known switch, or a loop, assigns is not
known, nor is what other packages return.
Sections have the names of Megatron-LM's arguments, so that its own mapping makes fields of them.
"""

import ast
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from launcher.importing.read_argv import read_argv
from launcher.job import Value, value_at
from launcher.mapping.backend import get_backend
from tools.recipe_sources.compare import source_text

PROJECT = "Megatron-Bridge"
Config = dict[str, Any]
UNKNOWN: Any = object()
_BACKEND = "megatron_lm"
_PACKAGE = "megatron.bridge"
_PACKAGES = {PROJECT: (_PACKAGE, "src/"), "NeMo": ("nemo.collections.llm", "")}
CLASS = "(class)"
"""Key of the class that `run.Config(Class, …)` makes."""
_TYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
# Sections whose values Megatron-LM's arguments have, and the names that differ: the decay of weights is the
# schedule's, which replaces the optimizer's.
_SECTIONS = ("model", "train", "validation", "optimizer", "scheduler", "ddp", "dataset", "checkpoint", "rng")
_RENAMED = {
    "optimizer.weight_decay": "",
    "scheduler.start_weight_decay": "weight_decay",
    "ddp.grad_reduce_in_fp32": "",
    "model.mtp_num_layers": "",
}


class Tree:
    """The Python files of one commit, read through a function of their path.

    Args:
        package: whose imports are followed.
        root: folder of the package's parent.
    """

    def __init__(self, read: Callable[[str], str], package: str = _PACKAGE, root: str = "src/") -> None:
        self._read, self._modules = read, dict[str, ast.Module]()
        self._package, self._root = package, root

    def module(self, path: str) -> ast.Module:
        """Return the syntax tree of a file."""
        if path not in self._modules:
            self._modules[path] = ast.parse(self._read(path))
        return self._modules[path]

    def find(self, path: str, name: str) -> tuple[str, ast.stmt] | None:
        """Return the definition of a function, class or constant, and its file, also where that imports it."""
        for node in self.module(path).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
                return path, node
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and name in map(ast.unparse, _targets(node)):
                return path, node
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{self._package}."):
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        return self.find(f"{self._root}{(node.module or '').replace('.', '/')}.py", alias.name)
        return None


def tree_of(source: str, folders: Mapping[str, Path]) -> Tree:
    """Return the files of a source's commit.

    Args:
        source: project, commit, path and function.
        folders: git directory, or checkout, of each project.
    """
    project, commit, *_ = source.split(" ")
    package, root = _PACKAGES[project]
    return Tree(lambda path: source_text(f"{project} {commit} {path}", folders).decode(), package, root)


def configuration(tree: Tree, path: str, function: str, given: Mapping[str, Any] | None = None) -> Any:
    """Return what a function returns: sections by name, or several of them."""
    found = tree.find(path, function)
    if found is None or not isinstance(found[1], ast.FunctionDef):
        return UNKNOWN
    return _Call(tree, found[0]).run(found[1], given or {})


class _Call:
    def __init__(self, tree: Tree, path: str) -> None:
        self.tree, self.path, self.names = tree, path, dict[str, Any]()

    def run(self, function: ast.FunctionDef, given: Mapping[str, Any]) -> Any:
        arguments = function.args.args
        defaults = dict(zip(reversed(arguments), reversed(function.args.defaults), strict=False))
        self.names = {each.arg: self.value(defaults[each]) if each in defaults else UNKNOWN for each in arguments}
        self.names.update({str(arguments[int(name)].arg) if name.isdigit() else name: v for name, v in given.items()})
        for node in function.body:
            if isinstance(node, ast.Return):
                return self.value(node.value)
            self.statement(node)
        return UNKNOWN

    def statement(self, node: ast.stmt) -> None:
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            value = self.value(node.value)
            for target in _targets(node):
                self.put(target, value)
        elif isinstance(node, ast.Expr):
            self.value(node.value)
        elif isinstance(node, ast.If) and isinstance(self.value(node.test), bool):
            for inner in node.body if self.value(node.test) else node.orelse:
                self.statement(inner)
        elif isinstance(node, (ast.If, ast.For, ast.With)):
            for each in ast.walk(node):
                if isinstance(each, ast.Assign):
                    for target in each.targets:
                        self.put(target, UNKNOWN)

    def put(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self.names[target.id] = value
        elif isinstance(target, ast.Tuple):
            several = value if isinstance(value, list) and len(value) == len(target.elts) else None
            for index, each in enumerate(target.elts):
                self.put(each, UNKNOWN if several is None else several[index])
        elif isinstance(target, ast.Attribute):
            owner = self.value(target.value)
            if isinstance(owner, dict):
                owner[target.attr] = value

    def value(self, node: ast.expr | None) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, (ast.List, ast.Tuple)):
            return [self.value(each) for each in node.elts]
        if isinstance(node, ast.Name):
            return self.named(node.id)
        if isinstance(node, ast.Attribute):
            if ast.unparse(node.value) == "torch":
                return _TYPES.get(node.attr, UNKNOWN)
            owner = self.value(node.value)
            return owner.setdefault(node.attr, {}) if isinstance(owner, dict) else UNKNOWN
        if isinstance(node, ast.Call):
            return self.called(node)
        if isinstance(node, ast.IfExp):
            return self.chosen(node)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            factors = (self.value(node.left), self.value(node.right))
            if not all(isinstance(each, (int, float)) for each in factors):
                return UNKNOWN
            product = factors[0] * factors[1]
            return float(f"{product:.12g}") if isinstance(product, float) else product  # 0.1 * 3e-4 is 3e-5
        try:
            return ast.literal_eval(node) if node is not None else None
        except ValueError:
            return UNKNOWN

    def chosen(self, node: ast.IfExp) -> Any:
        """Return the value of `A if NAME is not None else B`, the only condition that is decided here."""
        test = node.test
        if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], (ast.Is, ast.IsNot)):
            return UNKNOWN
        value = self.value(test.left)
        if value is UNKNOWN or ast.unparse(test.comparators[0]) != "None":
            return UNKNOWN
        return self.value(node.body if (value is None) == isinstance(test.ops[0], ast.Is) else node.orelse)

    def named(self, name: str) -> Any:
        if name in self.names:
            return self.names[name]
        found = self.tree.find(self.path, name)
        if found is None or not isinstance(found[1], (ast.Assign, ast.AnnAssign)):
            return UNKNOWN
        return _Call(self.tree, found[0]).value(found[1].value)

    def called(self, node: ast.Call) -> Any:
        given = {str(index): self.value(each) for index, each in enumerate(node.args)}
        given.update({each.arg: self.value(each.value) for each in node.keywords if each.arg})
        name = ast.unparse(node.func)
        if name.isidentifier() and not name[:1].isupper():
            return configuration(self.tree, self.path, name, given)
        # An object of a class: what it is made with, and what is assigned to it later.
        made = {key: value for key, value in given.items() if not key.isdigit()}
        if name.endswith("Config") and not name.isidentifier() and node.args:
            made[CLASS] = ast.unparse(node.args[0])
        return made


def class_defaults(tree: Tree, path: str, name: str) -> Config:
    """Return the constants that a class and its bases in the tree assign to their fields."""
    found = tree.find(path, name)
    if found is None or not isinstance(found[1], ast.ClassDef):
        return {}
    file, node = found
    values: Config = {}
    for base in reversed(node.bases):
        values |= class_defaults(tree, file, ast.unparse(base))
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and each.value is not None:
            value = _Call(tree, file).value(each.value)
            if not isinstance(value, dict):
                values[ast.unparse(each.target)] = value
    return values


def _targets(node: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def fields(config: Config) -> dict[str, Value]:
    """Return the fields of a job that a configuration sets, by Megatron-LM's mapping."""
    backend = get_backend(_BACKEND)
    imported = read_argv(list(_words(config)), backend=_BACKEND, version=backend.default_version, partial=True)
    paths = dict.fromkeys(path for arg in imported.mapped_args for path in arg.fields)
    return {path: value_at(imported.job, path) for path in paths}


def _words(config: Config) -> Iterator[str]:
    backend = get_backend(_BACKEND)
    by_dest: dict[str, list[Any]] = {}
    for argument in backend.catalogue(backend.default_version).arguments:
        by_dest.setdefault(argument.dest, []).append(argument)
    for section in _SECTIONS:
        values = config.get(section)
        for name, value in values.items() if isinstance(values, dict) else ():
            if value is None or value is UNKNOWN or isinstance(value, dict):
                continue
            for argument in by_dest.get(_RENAMED.get(f"{section}.{name}", name), ()):
                if argument.is_flag:
                    if isinstance(value, bool) and value == (argument.action == "store_true"):
                        yield f"--{argument.name}"
                    continue
                yield f"--{argument.name}"
                yield from (map(str, value) if isinstance(value, list) else (str(value),))
