"""Assignments of a script: variables, arrays, items of arrays, exports."""

from launcher.importing.shell.arithmetic import NotArithmetic, evaluate
from launcher.importing.shell.expand import Expander
from launcher.importing.shell.grammar import Node, text_of

_LONGEST_ARRAY = 10_000


class Assignments:
    """Makes assignments in the state of a script."""

    def __init__(self, expander: Expander) -> None:
        self.expander = expander
        self.state = expander.state

    def assign(self, node: Node, target: dict[str, str] | None = None) -> str:
        """Assign; into `target` for assignments before a command. Returns the variable's name."""
        name_node, value_node = node.child_by_field_name("name"), node.child_by_field_name("value")
        adds = any(child.type == "+=" for child in node.children)
        if name_node.type == "subscript":
            self._assign_item(name_node, value_node, adds)
            return text_of(name_node.children[0])
        name = text_of(name_node)
        if value_node is not None and value_node.type == "array":
            self._assign_array(name, value_node, adds)
            return name
        text = "" if value_node is None else self.expander.text(value_node)
        if target is not None:
            target[name] = text
            return name
        old = self.state.variables.get(name)
        if adds and isinstance(old, list):
            self.state.set(name, [(old[0] if old else "") + text, *old[1:]])
        else:
            self.state.set(name, (old if adds and isinstance(old, str) else "") + text)
        return name

    def _assign_array(self, name: str, node: Node, adds: bool) -> None:
        old = self.state.variables.get(name)
        items = [child for child in node.children if child.is_named and child.type != "comment"]
        if isinstance(old, dict) or (items and all(_key_of(item) is not None for item in items)):
            pairs = {}
            for item in items:
                text = self.expander.text(item)
                key, _, value = text.removeprefix("[").partition("]=")
                pairs[key] = value
            self.state.set(name, {**(old if adds and isinstance(old, dict) else {}), **pairs})
            return
        words = [word for item in items for word in self.expander.words(item)]
        before = ([old] if isinstance(old, str) else list(old or [])) if adds else []
        self.state.set(name, [*before, *words])

    def _assign_item(self, target: Node, value_node: Node | None, adds: bool) -> None:
        name, index = text_of(target.children[0]), target.child_by_field_name("index")
        text = "" if value_node is None else self.expander.text(value_node)
        key = self.expander.text(index) if index is not None else ""
        old = self.state.variables.get(name)
        if isinstance(old, dict):
            self.state.set(name, {**old, key: (old.get(key, "") if adds else "") + text})
            return
        items = [old] if isinstance(old, str) else list(old or [])
        try:
            at = evaluate(key, self.expander.look_up)
        except NotArithmetic:
            return
        if 0 <= at < _LONGEST_ARRAY:
            items += [""] * (at + 1 - len(items))
            items[at] = (items[at] if adds else "") + text
            self.state.set(name, items)

    def declare(self, node: Node) -> None:
        """Make `export`, `local`, `declare` and `readonly` with their assignments."""
        word = text_of(node.children[0])
        options = "".join(text_of(child) for child in node.children if text_of(child).startswith("-"))
        for child in node.children[1:]:
            name = None
            if child.type == "variable_assignment":
                if "A" in options and word in ("declare", "local", "typeset"):
                    self.state.variables.setdefault(text_of(child.child_by_field_name("name")), {})
                name = self.assign(child)
            elif child.type == "variable_name":
                name = text_of(child)
                if "A" in options:
                    self.state.variables.setdefault(name, {})
            if name is not None and (word == "export" or "x" in options):
                self.state.exported.add(name)

    def unset(self, node: Node) -> None:
        """Make `unset`."""
        for child in node.children[1:]:
            name = text_of(child)
            if name not in self.state.fixed:
                self.state.variables.pop(name, None)
            self.state.exported.discard(name)


def _key_of(item: Node) -> str | None:
    text = text_of(item)
    return text if text.startswith("[") and "]=" in text else None
