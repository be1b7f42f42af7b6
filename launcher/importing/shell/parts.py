"""Parses `${NAME…}`: the grammar gives a flat list of nodes, with gaps in place of white space."""

from dataclasses import dataclass

from launcher.importing.shell.grammar import Node, decoded, text_of


def between(source: bytes, offset: int, start: int, end: int) -> str:
    """Return the text between two bytes of a source that begins at `offset`."""
    return decoded(source[start - offset : end - offset])


def _with_gaps(node: Node) -> "list[str | Node]":
    """Return a node, or the parts of a concatenation with the white space between them, which the grammar drops."""
    if node.type != "concatenation":
        return [node]
    parts: list[str | Node] = []
    at = node.start_byte
    for child in node.children:
        if child.start_byte > at:
            parts.append(between(node.text, node.start_byte, at, child.start_byte))
        parts.append(child)
        at = child.end_byte
    return parts


@dataclass(slots=True)
class Parts:
    """Parts of `${prefix name [index] operator arguments…}`."""

    name: str
    prefix: str = ""
    index: str | None = None
    index_node: Node = None
    operator: str | None = None
    arguments: "list[list[str | Node]]" = None  # type: ignore[assignment]

    @classmethod
    def of(cls, node: Node) -> "Parts":
        """Return the parts of an `expansion` node."""
        parts = cls(name="", arguments=[])
        source, offset = node.text, node.start_byte
        at = node.start_byte + node.text.index(b"{") + 1
        for child in node.children:
            if child.type in ("${", "}") and not parts.name:
                continue
            if not parts.name:
                parts._head(child)
                at = child.end_byte
                continue
            is_end = child.type == "}" and child.end_byte == node.end_byte
            wants_more = not parts.arguments or parts.operator in ("/", "//", "/#", "/%", ":")
            if parts.operator is None and not is_end:
                parts.operator, at = text_of(child).strip(), child.end_byte
                parts.arguments.append([])
                continue
            if child.end_byte <= at:
                continue
            if child.start_byte > at and parts.arguments:
                parts.arguments[-1].append(between(source, offset, at, child.start_byte))
            if is_end:
                break
            if wants_more and child.type in ("/", ":") and len(parts.arguments) < 2:
                parts.arguments.append([])
            elif child.type in ("/", "//", "#", "%") and parts.operator == "/" and not parts.arguments[-1]:
                parts.operator += child.type
            else:
                parts.arguments[-1] += _with_gaps(child)
            at = child.end_byte
        return parts

    def typed(self) -> str:
        """Return the first argument as typed."""
        first = self.arguments[0] if self.arguments else []
        return "".join(part if isinstance(part, str) else text_of(part) for part in first)

    def _head(self, child: Node) -> None:
        if child.type in ("variable_name", "special_variable_name", "word", "number"):
            self.name = text_of(child)
        elif child.type == "subscript":
            self.name = text_of(child.children[0])
            self.index_node = child.child_by_field_name("index")
            self.index = text_of(self.index_node) if self.index_node is not None else ""
        elif child.type in ("#", "!"):
            self.prefix = child.type
