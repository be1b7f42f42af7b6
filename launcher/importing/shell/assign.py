"""Assignments of a script: variables, arrays, array elements, exports."""

from launcher.importing.shell.arithmetic import NotArithmetic, evaluate
from launcher.importing.shell.elements import set_element
from launcher.importing.shell.expand import Expander
from launcher.importing.shell.grammar import Node, line_of, text_of
from launcher.importing.shell.placeholders import is_open, placeholder, shown
from launcher.syntax import is_count


class Assignments:
    """Makes assignments in the state of a script."""

    def __init__(self, expander: Expander) -> None:
        self.expander = expander
        self.state = expander.state
        self._expanded: dict[int, str] = {}

    def assign(self, node: Node, target: dict[str, str] | None = None) -> str:
        """Assign; into `target` for assignments before a command. Returns the variable's name."""
        name_node, value_node = node.child_by_field_name("name"), node.child_by_field_name("value")
        adds = any(child.type == "+=" for child in node.children)
        if name_node.type == "subscript":
            return self._assign_item(name_node, value_node, adds)
        name = self.state.named(text_of(name_node))
        if name.endswith("]") and value_node is not None:  # a reference to an element
            array, _, key = name[:-1].partition("[")
            self._set_element(array, key, self.expander.text(value_node), adds)
            return array
        if value_node is not None and value_node.type == "array":
            self._assign_array(name, value_node, adds)
            return name
        text = self._expanded.pop(node.id, None)
        if text is None:
            text = "" if value_node is None else self.expander.text(value_node)
        if target is not None:
            target[name] = text
            return name
        old = self.state.get(name)
        if adds and isinstance(old, list):
            self.state.set(name, [(old[0] if old else "") + text, *old[1:]])
        else:
            self.state.set(name, (old if adds and isinstance(old, str) else "") + text)
        return name

    def _assign_array(self, name: str, node: Node, adds: bool) -> None:
        old = self.state.get(name)
        items = [child for child in node.children if child.is_named and child.type != "comment"]
        if all(_key_of(item) is not None for item in items) and (items or isinstance(old, dict)):
            pairs = {}
            for item in items:
                text = self.expander.text(item)
                key, _, value = text.removeprefix("[").partition("]=")
                pairs[key] = value
            self.state.set(name, {**(old if adds and isinstance(old, dict) else {}), **pairs})
            return
        words = [word for item in items for word in self.expander.words(item)]
        if adds and isinstance(old, dict):  # an array with gaps
            following = max((int(key) for key in old if is_count(key)), default=-1) + 1
            self.state.set(name, {**old, **{str(at): word for at, word in enumerate(words, following)}})
            return
        before = ([old] if isinstance(old, str) else list(old or [])) if adds else []
        self.state.set(name, [*before, *words])

    def _assign_item(self, target: Node, value_node: Node | None, adds: bool) -> str:
        name, index = self.state.named(text_of(target.children[0])), target.child_by_field_name("index")
        text = "" if value_node is None else self.expander.text(value_node)
        key = self.expander.text(index) if index is not None else ""
        self._set_element(name, key, text, adds)
        return name

    def _set_element(self, name: str, key: str, text: str, adds: bool) -> None:
        set_element(self.state, name, key, text, self.expander.look_up, adds=adds)

    def _unset_item(self, name: str, key: str) -> None:
        """Evaluate `unset 'A[1]'`: the other elements keep their indices."""
        old = self.state.get(name)
        if isinstance(old, list):
            try:
                key = str(evaluate(key, self.expander.look_up))
            except NotArithmetic:
                return
            old = {str(index): item for index, item in enumerate(old)}
            key = str(len(old) + int(key)) if key.startswith("-") else key
        if isinstance(old, dict):
            self.state.set(name, {index: item for index, item in old.items() if index != key})

    def declare(self, node: Node) -> None:
        """Evaluate `export`, `local`, `declare` and `readonly` with their assignments."""
        word = text_of(node.children[0])
        options = "".join(text_of(child) for child in node.children if text_of(child).startswith("-"))
        is_local = word in ("local", "declare", "typeset") and "g" not in options
        # All words are expanded before the first one is assigned: B of `export A=1 B=$A` is the A of before.
        values = {child.id: child.child_by_field_name("value") for child in node.children[1:] if _is_plain(child)}
        self._expanded = {id: self.expander.text(value) for id, value in values.items()}
        for child in node.children[1:]:
            if child.type in ("command_substitution", "simple_expansion", "expansion"):
                self._declare_words(self.expander.words(child), is_export=word == "export")
                continue
            if "n" in options and word != "export":
                self._refer(child, is_local=is_local)
                continue
            name = self._declared(child, is_local=is_local, is_map="A" in options)
            if name is None:
                continue
            if word == "export" or "x" in options:
                self.state.exported.add(self.state.named(name))
            value = self.state.get(name)
            if "i" in options and word != "export" and isinstance(value, str):
                try:
                    text = str(evaluate(value, self.expander.look_up))
                except NotArithmetic:
                    text = value if is_open(value) else placeholder(f"$(({value}))")
                self.state.set(name, text)

    def _refer(self, child: Node, *, is_local: bool) -> None:
        """Evaluate `declare -n NAME=TARGET`: from then on NAME stands for TARGET."""
        state, is_assigned = self.state, child.type == "variable_assignment"
        name_node, value_node = child.child_by_field_name("name"), child.child_by_field_name("value")
        name = text_of(name_node if is_assigned else child)
        target = self.expander.text(value_node) if is_assigned and value_node is not None else ""
        if not name.isidentifier() or target == name:  # to bash, a variable of that name outside of the function
            return
        if is_open(target):
            where = f"{state.script}:{line_of(child)}"
            state.fail(f"{text_of(child)} refers to a variable whose name is not known: {shown(target)}", where)
            return
        if is_local:
            state.declare_local(name)
        state.variables.pop(name, None)
        state.references[name] = ""
        state.refer(name, target)

    def _declare_words(self, words: list[str], *, is_export: bool) -> None:
        """Evaluate `export $(echo A=1 B=2)`: words that result from an expansion."""
        for name, equals, text in (word.partition("=") for word in words):
            if equals and name.isidentifier():
                self.state.set(name, text)
            if is_export and name.isidentifier():
                self.state.exported.add(name)

    def _declared(self, child: Node, *, is_local: bool, is_map: bool) -> str | None:
        """Evaluate one declaration; returns the variable's name, None for an option."""
        is_text = child.type in ("string", "raw_string", "concatenation")
        name, equals, text = self.expander.text(child).partition("=") if is_text else (text_of(child), "", "")
        if child.type == "variable_assignment":
            target = child.child_by_field_name("name")
            name = text_of(target.children[0] if target.type == "subscript" else target)
        if not name.isidentifier() or not (is_text or child.type in ("variable_assignment", "variable_name")):
            return None
        if is_local:
            self.state.declare_local(name)
        if is_map:
            self.state.variables.setdefault(name, {})
        if child.type == "variable_assignment":
            self.assign(child)
        elif equals:  # export "NAME=value"
            self.state.set(name, text)
        elif is_local and self.state.scopes and not is_map and name not in self.state.fixed:
            self.state.variables.pop(name, None)
        return name

    def unset(self, node: Node) -> None:
        """Evaluate `unset`."""
        options, words = "", "".join(f" {text_of(child)}" for child in node.children[1:]).replace(" [", "[").split()
        while words and words[0].startswith("-"):
            options += words.pop(0)
        for name in (word.strip("'\"") for word in words):
            if "f" in options:
                self.state.functions.pop(name, None)
                continue
            if "n" in options:
                self.state.references.pop(name, None)
                continue
            name = self.state.named(name)
            if "[" in name:
                self._unset_item(*name.rstrip("]").split("[", 1))
                continue
            if name not in self.state.fixed:
                self.state.variables.pop(name, None)
            self.state.exported.discard(name)


def _is_plain(child: Node) -> bool:
    """Return whether a part of a declaration assigns a text to a variable."""
    value = child.child_by_field_name("value") if child.type == "variable_assignment" else None
    return value is not None and value.type != "array"


def _key_of(item: Node) -> str | None:
    text = text_of(item)
    return text if text.startswith("[") and "]=" in text else None
