"""Expands words of a script as bash does: quotes, variables, arrays, arithmetic, word splitting."""

import re
from collections.abc import Callable, Iterator

from launcher.importing.shell import patterns, quoting
from launcher.importing.shell.arithmetic import NotArithmetic, evaluate
from launcher.importing.shell.braces import braced
from launcher.importing.shell.diagnostics import NotReadable
from launcher.importing.shell.elements import key_in, set_element
from launcher.importing.shell.grammar import Node, line_of, parse, text_of
from launcher.importing.shell.parts import Parts, between
from launcher.importing.shell.pieces import Piece, assembled
from launcher.importing.shell.placeholders import (
    INHERITED,
    emptied,
    has_output,
    is_open,
    names,
    only,
    placeholder,
    separable,
)
from launcher.importing.shell.state import State, Variable
from launcher.syntax import is_count

_LONGEST_PATTERN_TEXT = 4000
_MOST_TEXT = 64 * 2**20
# Inherited variables that every shell sets.
ALWAYS_SET = frozenset({"HOME", "USER", "LOGNAME", "PATH"})
_OVERLOOKED = re.compile(r"(?<!\\)\$(\w+|[@*#?])")
_OF_ITEMS = re.compile(r"\$(?:@|\{@|\{!?\w+\[@\])")
_GLOB = re.compile(r"(?<!\\)[*?].*/|/.*(?<!\\)[*?]")
_DEFAULTS = frozenset({":-", "-", ":=", "=", ":?", "?", ":+", "+"})


class Expander:
    """Expands nodes of one script against its state."""

    def __init__(self, state: State, capture: Callable[[Node], str | None]) -> None:
        self.state = state
        self._capture = capture
        self.budget = _MOST_TEXT

    # -- words

    def words(self, node: Node) -> list[str]:
        """Return the words that a node expands to where several are allowed (arguments, arrays, `for` lists)."""
        typed = text_of(node) if node.type in ("concatenation", "word", "brace_expression") else ""
        alternatives = braced(typed) if "{" in typed else [typed]
        if len(alternatives) > 1:
            root = parse(f": {' '.join(alternatives)}".encode(), self.state.script, line_of(node))
            return [word for each in root.children[0].children[1:] for word in self.words(each)]
        words = assembled(list(self._pieces(node, quoted=False)), quoted=has_quotes(node), ifs=self.ifs())
        if _GLOB.search(typed) and _GLOB.search(quoting.pattern(typed, lambda _: "", lambda _: "")):
            self.state.globs |= dict.fromkeys(words, f"{self.state.script}:{line_of(node)}")
        return words

    def ifs(self) -> str | None:
        """Return the word separators; None: white space, the default."""
        value = self.state.variables.get("IFS")
        return value if isinstance(value, str) and value != " \t\n" and not is_open(value) else None

    def text(self, node: Node) -> str:
        """Return the single text that a node expands to where nothing is split (assignments, `case`, `[[ ]]`)."""
        pieces = list(self._pieces(node, quoted=False))
        return "".join((" " if piece.breaks and index else "") + piece.text for index, piece in enumerate(pieces))

    def _pieces(self, node: Node, *, quoted: bool) -> Iterator[Piece]:
        kind = node.type
        if kind in ("string", "translated_string"):
            string = node if kind == "string" else node.children[-1]
            yield from self._in_quotes(string, string.start_byte + 1, string.end_byte - 1)
        elif kind == "raw_string":
            yield Piece(text_of(node)[1:-1])
        elif kind == "ansi_c_string":
            yield Piece(patterns.ansi(text_of(node)[2:-1]))
        elif kind == "simple_expansion":
            typed = _typed(node)
            yield from self._variable(typed[1:], quoted, typed)
        elif kind == "expansion":
            yield from self._expansion(node, quoted)
        elif kind == "command_substitution":
            typed = text_of(node).strip()
            if node.parent is not None and node.parent.type == "heredoc_body" and typed.startswith("$(("):
                yield Piece(self.arithmetic(node, typed))  # a subshell in the grammar
            else:
                yield Piece(self._output(node), splits=not quoted)
        elif kind == "arithmetic_expansion":
            yield Piece(self.arithmetic(node, _typed(node)))
        elif kind == "process_substitution":
            yield Piece(placeholder(text_of(node)))
        elif kind in ("concatenation", "command_name", "array"):
            yield from self._children(node, quoted)
        elif kind == "word" and not quoted and re.match(r"~(/|$)", text_of(node)):
            yield from self._variable("HOME", True, "$HOME")
            yield Piece(patterns.unescaped(text_of(node)[1:]))
        else:
            yield Piece(patterns.unescaped(text_of(node)))

    def _children(self, node: Node, quoted: bool) -> Iterator[Piece]:
        if not node.children:
            yield Piece(patterns.unescaped(text_of(node)))
        for child in node.children:
            yield from self._pieces(child, quoted=quoted)

    def _in_quotes(self, node: Node, start: int, end: int) -> Iterator[Piece]:
        """Yield text and expansions between two bytes of a double-quoted node, including text between children."""
        source, offset, at = node.text, node.start_byte, start
        for child in node.children:
            if (
                child.end_byte <= start
                or child.start_byte >= end
                or child.type in ("string_content", "heredoc_content")
            ):
                continue
            if child.type not in ("simple_expansion", "expansion", "command_substitution", "arithmetic_expansion"):
                continue
            if child.start_byte > at:
                yield from self._between(between(source, offset, at, child.start_byte), node)
            # tree-sitter includes white space and continued lines before `$` in the expansion
            leading = _before_dollar(text_of(child))
            if leading:
                yield Piece(patterns.unescaped_in_quotes(text_of(child)[:leading]))
            yield from self._pieces(child, quoted=True)
            at = child.end_byte
        if end > at:
            yield from self._between(between(source, offset, at, end), node)

    def _between(self, text: str, node: Node) -> Iterator[Piece]:
        """Yield the text between expansions; in here-documents the grammar misses some, such as `$1`."""
        at = 0
        for found in _OVERLOOKED.finditer(text) if node.type == "heredoc_body" else ():
            yield Piece(patterns.unescaped_in_quotes(text[at : found.start()]))
            yield from self._variable(found.group(1), True, found.group())
            at = found.end()
        yield Piece(patterns.unescaped_in_quotes(text[at:]))

    def heredoc(self, body: Node) -> str:
        """Return the text of a here-document whose delimiter is not quoted."""
        return "".join(piece.text for piece in self._in_quotes(body, body.start_byte, body.end_byte))

    # -- variables

    def value(self, name: str) -> Variable | None:
        """Return the value of a variable; None if it is not set."""
        state = self.state
        name = state.named(name)
        if name.endswith("]"):
            array, _, key = name[:-1].partition("[")
            value = self.value(array)
            return None if value is None else self._item(value, key_in(value, key, self.look_up))
        if name in state.variables:
            return state.variables[name]
        if name in ("0", "BASH_SOURCE"):
            return state.script
        if name == "#":
            return str(len(state.arguments()))
        if name == "?":
            return state.last_status()
        if name in ("@", "*"):
            return state.arguments()
        if is_count(name):
            at = int(name)
            return state.positional[at - 1] if at <= len(state.positional) else None
        if name == "OSTYPE":
            return "linux-gnu"
        if name == "OLDPWD" and state.previous_directory not in ("", "."):
            return state.previous_directory
        return state.directory if name == "PWD" and state.directory != "." else None

    def look_up(self, name: str) -> str:
        """Return a variable's text for arithmetic: 0 (empty) if it is not set.

        Raises:
            NotArithmetic: the value is unknown.
        """
        array, bracket, index = name.partition("[")
        value = self.value(array)
        if bracket:
            value = self._item(value, index[:-1])
        if value is None:
            if array.isidentifier() and name not in self.state.assumed and name not in self.state.defaulted:
                raise NotArithmetic(f"{name} is not set")
            return ""
        text = _as_text(value)
        if is_open(text):
            raise NotArithmetic(f"{name} is not known")
        return text

    def store(self, name: str, text: str) -> None:
        """Assign a variable, or an array element, `A[1]`."""
        array, bracket, key = self.state.named(name).partition("[")
        if bracket:
            set_element(self.state, array, key[:-1], text, self.look_up)
        else:
            self.state.set(name, text)

    def _item(self, value: Variable | None, key: str) -> str | None:
        """Return an array element; None if there is none with this key."""
        if value is None or isinstance(value, dict):
            return None if value is None else value.get(key)
        items = [value] if isinstance(value, str) else value
        try:
            return items[evaluate(key, self.look_up)]
        except (NotArithmetic, IndexError):
            return None

    def _variable(self, name: str, quoted: bool, typed: str) -> Iterator[Piece]:
        yield from self._spread(self.value(name), quoted, name if name in ("@", "*") else None, typed, name)

    def _pay(self, text: str) -> str:
        """Count the expanded text against a limit, since a few lines can expand beyond any memory size."""
        self.budget -= len(text)
        if self.budget < 0:
            raise NotReadable(f"its variables expand to more than {_MOST_TEXT // 2**20} MiB of text", self.state.script)
        return text

    def _spread(
        self, value: Variable | None, quoted: bool, index: str | None, typed: str, name: str
    ) -> Iterator[Piece]:
        if value is None:
            yield Piece(placeholder(f"${{{name}}}" if name in INHERITED else typed))
        elif isinstance(value, str):
            yield Piece(self._pay(value), splits=not quoted)
        elif index is None:
            items = list(value.values()) if isinstance(value, dict) else value
            yield Piece(items[0] if items else "", splits=not quoted)
        elif index == "*" and quoted:
            ifs = self.ifs()
            yield Piece((" " if ifs is None else ifs[:1]).join(value.values() if isinstance(value, dict) else value))
        else:
            for number, item in enumerate(value.values() if isinstance(value, dict) else value):
                yield Piece(self._pay(item), splits=not quoted, breaks=number > 0)

    def _expansion(self, node: Node, quoted: bool) -> Iterator[Piece]:
        parts = Parts.of(node)
        typed = _typed(node)
        value = self._subscripted(parts)
        if typed == "${!#}":
            last = (self.state.arguments() or [self.state.script])[-1]
            yield from self._spread(last, quoted, None, typed, parts.name)
            return
        if parts.prefix == "#":
            yield Piece(self._length(value, parts, typed))
            return
        if parts.prefix == "!":
            yield from self._indirect(value, parts, quoted, typed)
            return
        if parts.operator is None:
            index = parts.name if parts.name in ("@", "*") else parts.index
            yield from self._spread(value, quoted, index, typed, parts.name)
            return
        yield from self._operated(value, parts, quoted, typed)

    def _subscripted(self, parts: Parts) -> Variable | None:
        value = self.value(parts.name)
        if parts.index in (None, "@", "*") or value is None:
            if parts.index in ("@", "*") and isinstance(value, str):
                return [value]
            return value
        return self._item(value, key_in(value, self.text(parts.index_node), self.look_up))

    def _length(self, value: Variable | None, parts: Parts, typed: str) -> str:
        if value is None:
            return "0" if parts.index in ("@", "*") else placeholder(typed)
        if parts.index in ("@", "*") or (isinstance(value, (list, dict)) and parts.name in ("@", "*")):
            items = value.values() if isinstance(value, dict) else value
            # An unknown element may expand to any number of words.
            return placeholder(typed) if any(map(only, items)) else str(len(value))
        text = _as_text(value)
        return placeholder(typed) if is_open(text) else str(len(text))

    def _indirect(self, value: Variable | None, parts: Parts, quoted: bool, typed: str) -> Iterator[Piece]:
        if parts.index in ("@", "*") and value is not None:
            keys = list(value) if isinstance(value, dict) else [str(index) for index in range(len(value))]
            yield from self._spread(keys, quoted, parts.index, typed, parts.name)
            return
        if parts.index is None and parts.operator in ("@", "*"):
            names = sorted(name for name in self.state.variables if name.startswith(parts.name))
            yield from self._spread(names or None, quoted, parts.operator, typed, parts.name)
            return
        if parts.name in self.state.references and parts.index is None:
            yield Piece(self.state.references[parts.name], splits=not quoted)
            return
        target = None if value is None else _as_text(value)
        found = None if target is None or is_open(target) else self.value(target)
        if found is None and parts.operator in _DEFAULTS:
            yield from self._operated(None, parts, quoted, typed)
            return
        yield from self._spread(found, quoted, parts.index, typed, parts.name)

    def _operated(self, value: Variable | None, parts: Parts, quoted: bool, typed: str) -> Iterator[Piece]:
        operator = parts.operator
        assert operator is not None
        if operator in _DEFAULTS:
            yield from self._default(value, operator, parts, quoted, typed)
        elif value is None:
            yield Piece(placeholder(typed))
        elif isinstance(value, str):
            yield Piece(self._changed(value, operator, parts, typed), splits=not quoted)
        else:
            items = list(value.values()) if isinstance(value, dict) else value
            if operator == ":":
                items = self._slice(items, parts)
            else:
                items = [self._changed(item, operator, parts, typed) for item in items]
            yield from self._spread(items, quoted, parts.index or "@", typed, parts.name)

    def _default(
        self, value: Variable | None, operator: str, parts: Parts, quoted: bool, typed: str
    ) -> Iterator[Piece]:
        if value is None and parts.name in ALWAYS_SET:
            value = placeholder(f"${{{parts.name}}}")
        is_set = value is not None and not (operator.startswith(":") and _is_empty(value))
        kind = operator[-1]
        if kind == "+":
            if is_set:
                yield from self._rest(parts, quoted)
        elif is_set or (kind == "?" and value):
            yield from self._spread(value, quoted, parts.index, typed, parts.name)
        elif kind == "?":
            yield Piece(placeholder(f"${parts.name}"))
        else:
            self.state.defaulted.add(parts.name)
            pieces = list(self._rest(parts, quoted))
            if kind == "=":
                self.state.set(parts.name, "".join(piece.text for piece in pieces))
            yield from pieces

    def _rest(self, parts: Parts, quoted: bool) -> Iterator[Piece]:
        arguments = parts.arguments[0] if parts.arguments else []
        number = self._number_in(arguments)
        if number is not None:
            yield Piece(number)
            return
        for part in arguments:
            if isinstance(part, str):
                text = patterns.unescaped_in_quotes(part) if quoted else patterns.unescaped(part)
                yield Piece(text, splits=not quoted)
            elif part.type in ("word", "number") and not quoted:
                yield Piece(patterns.unescaped(text_of(part)), splits=True)
            else:
                yield from self._pieces(part, quoted=quoted)

    def _number_in(self, arguments: "list[str | Node]") -> str | None:
        """Return the value of a default such as `$[ A / 4 ]` (see `grammar`); None for anything else."""
        if not "".join(each if isinstance(each, str) else text_of(each) for each in arguments).startswith("$[ "):
            return None
        text = "".join(each if isinstance(each, str) else self.text(each) for each in arguments).strip()[2:-1].strip()
        try:
            return str(evaluate(text, self.look_up, self.state.set))
        except NotArithmetic:
            return placeholder(f"$(({text}))")

    def _argument(self, parts: Parts, index: int) -> str:
        if index >= len(parts.arguments):
            return ""
        return "".join(part if isinstance(part, str) else self.text(part) for part in parts.arguments[index])

    def pattern(self, typed: str, literal: Callable[[str], str] = quoting.literal) -> str:
        """Return the pattern that a text such as `*"$A".[0-9]` stands for."""

        def expand(word: str) -> str:
            return self.text(parse(f": {word}".encode(), self.state.script).children[0].children[1])

        return quoting.pattern(typed, expand, literal)

    def _changed(self, text: str, operator: str, parts: Parts, typed: str) -> str:
        first = self.pattern(parts.typed()) if operator[0] in "#%/" else self._argument(parts, 0)
        known = separable(text) if operator == "//" and first.startswith("-") else None
        if known is not None:  # an option renamed among unknown words
            return "".join(each if is_open(each) else self._changed(each, operator, parts, typed) for each in known)
        if is_open(text) or is_open(first) or len(text) > _LONGEST_PATTERN_TEXT:
            return placeholder(typed)
        if operator in ("#", "##", "%", "%%"):
            return patterns.trimmed(text, operator, first, extended=self.state.extglob)
        if operator in ("/", "//", "/#", "/%"):
            new = self._argument(parts, 1)
            return patterns.replaced(text, operator, first, new, extended=self.state.extglob)
        if operator[0] in "^,":
            return patterns.recased(text, operator)
        if operator in ("@U", "@L", "@u"):
            return patterns.recased(text, {"@U": "^^", "@L": ",,", "@u": "^"}[operator])
        if operator.startswith("@"):
            return placeholder(typed)
        if operator == ":":
            bounds = self._bounds(parts)
            return placeholder(typed) if bounds is None else patterns.substring(text, *bounds)
        return text

    def _bounds(self, parts: Parts) -> tuple[int, int | None] | None:
        try:
            offset = evaluate(self._argument(parts, 0), self.look_up)
            length = evaluate(self._argument(parts, 1), self.look_up) if len(parts.arguments) > 1 else None
        except NotArithmetic:
            return None
        return offset, length

    def _slice(self, items: list[str], parts: Parts) -> list[str]:
        bounds = self._bounds(parts)
        if bounds is None:
            return items
        offset, length = bounds
        if parts.name in ("@", "*"):
            offset -= 1 if offset > 0 else 0
        offset += len(items) if offset < 0 else 0
        return items[offset:] if length is None else items[offset : offset + length]

    # -- arithmetic

    def arithmetic(self, node: Node, typed: str) -> str:
        """Return the value of `$((…))`; a placeholder if a part of it is unknown."""
        try:
            return str(self.number(node))
        except NotArithmetic as error:
            if "not set" not in str(error) and "not known" not in str(error):
                self.state.warn(f"{typed}: {error}", f"{self.state.script}:{line_of(node)}")
            # Known variables by their values: their names are not those that a user would set.
            return placeholder(f"$(({self._substituted(node, typed[typed.index('((') + 2 : -2])}))")

    def number(self, node: Node, look_up: Callable[[str], str] | None = None) -> int:
        """Return the value of `$((…))` or `((…))`.

        Args:
            look_up: in place of `self.look_up`, where a variable that is not set is not unknown.

        Raises:
            NotArithmetic: it cannot be computed.
        """
        typed = _typed(node)
        inner = typed[typed.index("((") + 2 : -2]
        text = self._substituted(node, inner)
        if look_up is not None and not has_output(text):
            for name in names(text):
                look_up(name)
            text = emptied(text)
        if is_open(text):
            raise NotArithmetic("a part of it is unknown")
        return evaluate(text, look_up or self.look_up, self.store)

    def _substituted(self, node: Node, inner: str) -> str:
        """Return the expression with its `$…` expansions filled in."""
        found: list[Node] = []

        def walk(each: Node) -> None:
            for child in each.children:
                if child.type in ("simple_expansion", "expansion", "command_substitution", "arithmetic_expansion"):
                    found.append(child)
                else:
                    walk(child)

        walk(node)
        for child in found:
            inner = inner.replace(text_of(child), self.text(child), 1)
        return inner.replace('"', "")

    def _output(self, node: Node) -> str:
        output = self._capture(node)
        if output is None:
            return placeholder(_typed(node))
        return output.rstrip("\n")


def _typed(node: Node) -> str:
    """Return an expansion as typed, from its `$` on."""
    text = text_of(node)
    text = text[_before_dollar(text) :].strip()
    return f"$(({text[2:-1].strip()}))" if text.startswith("$[") else text


def _is_empty(value: Variable) -> bool:
    """Return whether a value is empty or consists of unset variables only: `A=$2` and then `${A:-1}`."""
    if not isinstance(value, str):
        return not value
    return not value or (emptied(value) == "" and not has_output(value) and not INHERITED.intersection(names(value)))


def _before_dollar(text: str) -> int:
    """Return the length of the white space and continued lines before an expansion."""
    match = re.match(r"(?:\\\n|\s)*", text)
    return 0 if match is None else match.end()


def _as_text(value: Variable) -> str:
    if isinstance(value, str):
        return value
    items = list(value.values()) if isinstance(value, dict) else value
    return items[0] if items else ""


def has_quotes(node: Node) -> bool:
    """Return whether a word is kept even if it is empty; `"${A[@]}"`, `"${@:2}"` of nothing are not."""
    if node.type in ("raw_string", "ansi_c_string"):
        return True
    if node.type in ("string", "translated_string"):
        inner = [child for child in node.children if child.is_named]
        is_whole = len(inner) == 1 and text_of(inner[0]) == text_of(node).removeprefix("$")[1:-1]
        return not (is_whole and _OF_ITEMS.match(text_of(inner[0])))
    return node.type == "concatenation" and any(has_quotes(child) for child in node.children)
