"""Arguments that objects of a checkout add to a parser by a method, such as MindSpeed's features."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from launcher.catalogue.checkout.files import SourceFile
from launcher.catalogue.checkout.interpreter import Interpreter
from launcher.catalogue.checkout.values import ClassValue, FunctionValue, ParserValue, Unknown


def follow_features(interpreter: Interpreter, path: str, lister: str, method: str) -> str:
    """Follow the method of each class that a file makes an object of; return the file, or "" if there is none.

    Args:
        path: path end of the file.
        lister: function that lists the objects, with those of the functions beside it; without such a function in the
            file, the objects made at its own level are the list.
        method: adds arguments to the parser that it gets.
    """
    paths = [each for each in interpreter.checkout.paths if f"/{each}".endswith(f"/{path}")]
    file = interpreter.checkout.file(min(paths, key=len)) if paths else None
    if file is None:
        return ""
    for kind in _classes(interpreter, file, lister):
        for function in _methods(interpreter, kind, method):
            interpreter.follow(function, [Unknown("self"), ParserValue()], {})
    return file.path


def _classes(interpreter: Interpreter, file: SourceFile, lister: str) -> Iterator[ClassValue]:
    functions = [node for node in file.tree.body if isinstance(node, ast.FunctionDef)]
    listed = any(node.name == lister for node in functions)
    places: list[ast.stmt] = [node for node in file.tree.body if isinstance(node, ast.FunctionDef) == listed]
    seen: set[ast.AST] = set()
    for place in places:
        for call in ast.walk(place):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
                kind = interpreter.value(call.func, ({},), file)
                if isinstance(kind, ClassValue) and kind.node not in seen:
                    seen.add(kind.node)
                    yield kind


def _methods(interpreter: Interpreter, kind: ClassValue, name: str) -> list[FunctionValue]:
    """Return the methods that run, the one of the most basic class first: a class's own, and what `super()` calls."""
    found: list[FunctionValue] = []
    for owner in interpreter.modules.bases(kind):
        node = next((each for each in owner.node.body if isinstance(each, ast.FunctionDef) and each.name == name), None)
        if node is None:
            continue
        found.insert(0, FunctionValue(node, owner.file))
        if not any(isinstance(each, ast.Name) and each.id == "super" for each in ast.walk(node)):
            break
    return found
