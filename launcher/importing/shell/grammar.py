"""Parses script text with tree-sitter's bash grammar; syntax errors get the line of their cause.

Why tree-sitter-bash and not bashlex: of 1,170 scripts in the repositories of the four training stacks that ship with
this program, bashlex 0.18 cannot read 576 (466 of them for `$((…))`, which it does not implement), tree-sitter-bash
0.25 fails on 59, most of them a continuation before an empty line, which `_repaired` handles. It is 8 times as
fast (0.9 ms a script), has wheels for every platform and Python, and is loaded in 10 ms.
"""

import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any, TypeAlias

from launcher.importing.shell.diagnostics import NotReadable
from launcher.importing.shell.placeholders import BLANK_LEFT, BLANK_RIGHT, BLANK_SPACE, KEPT_BLANK

Node: TypeAlias = Any
"""A tree_sitter.Node."""

INSTALL = "pip install 'launch-llm[import]' (tree-sitter, tree-sitter-bash)"
_MOST_REPAIRS = 50
# Messages for tokens that the parser misses; the place is that of the opening token.
_ENDS = {
    "heredoc_end": "the here-document opened here never ends: the line with its delimiter is missing",
    "fi": "the if opened here is never closed by fi",
    "done": "the loop opened here is never closed by done",
    "esac": "the case opened here is never closed by esac",
    "}": "the { opened here is never closed",
    ")": "the ( opened here is never closed",
    "))": "the (( opened here is never closed",
    "]]": "the [[ opened here is never closed",
    "`": "the ` opened here is never closed",
}
# `<your_path>`, unquoted, is a redirection in bash, but a placeholder to the author.
_BLANK = re.compile(rb"<([A-Za-z][\w./-]*)>|(?<==)<([A-Za-z][\w ./,-]*[\w.-])>|(?<=\w )<([A-Za-z]\w*(?: [\w./-]+)+)>")
# In place of a slash in the pattern of `${A//'/'/_}`, `${A//\\//$B}` and `${A////_}`, where the grammar ends it.
_SLASH = "\ue005"
_REPLACED = re.compile(
    rb"(\$\{[\w@*]+(?:\[[^]\n]*\])?/)(/{0,2})"
    rb"((?:\\.|'[^'\n]*'|\"(?:\\.|[^\"\\\n])*\"|\$\{[^{}\n]*\}|[^\\'\"/}\n])*+)(?=[/}])"
)
_SHOWN = str.maketrans({BLANK_LEFT: "<", BLANK_RIGHT: ">", BLANK_SPACE: KEPT_BLANK, _SLASH: "/"})
# `${TEXT:$LENGTH+1}`: the grammar requires the offset without its dollar sign.
_OFFSET = re.compile(rb"(\$\{\w+:(?![-=+?])[^}\s]*?)\$(\w+[^}\s]*\})")
# `${N:=$((A / B))}`: the grammar parses arithmetic in a default as a command, but supports the older `$[A / B]`.
_DEFAULT_NUMBER = re.compile(rb"\$\{\w+:?[-=+]\"?\$\(\(")
# Shell prompts `root@host:/workspace# torchrun …`, `(env) user@host:~$ …` and `$ …`, copied from a terminal or page.
_PROMPT = re.compile(rb"^[ \t]*(?:\([\w.-]+\) ?)?(?:[\w.-]+@[\w.-]+:[^\s#$]*[#$]|\$) (?=[\w./])", re.MULTILINE)
# `# a comment within a command`: a command substitution with nothing but a comment.
_INLINE = re.compile(rb"(?<=\s)`#[^`\n]*`(?=\s)")
# `$((10#$N))`: decimal despite leading zeros; the grammar supports `~`, and `~~~` does not occur otherwise.
_DECIMAL = re.compile(rb"(?<=[(\s+*/%-])10#(?=[$\d{])")
_AS_DECIMAL = b"~~~"
# At such a place tree-sitter-bash looks a character up in a table of 256 (scanner.c: isdigit), which ends the process
# with one above U+FFFF: github.com/tree-sitter/tree-sitter-bash/issues/337, not fixed in 0.25.1.
_CRASHES = re.compile(rb"\{\d*(?:\.\.\d*)?[\xf0-\xff]")
_VARIABLE = re.compile(rb"\$([A-Za-z_]\w*|[0-9@*#?!])")
# A word that begins with a blank, or is nothing else, as where one follows the backslash at the end of a line; the
# grammar skips it.
_ESCAPED_BLANK = re.compile(rb"(?<=[ \t])\\[ \t]")
# A second assignment in a line: the grammar reads the lines after it, up to the next command, as parts of that command.
_SECOND = re.compile(rb"=[^\n]*?[ \t]([A-Za-z_]\w*(?:\[[^]\n]*\])?\+?=)")
_LINE_END = re.compile(rb"(?<!\\)\n")
# `!(a|b*)`, which the grammar does not have; bash reads it after `shopt -s extglob`. Which files these programs change
# has no effect on a command line.
_EXTENDED = re.compile(rb"[?*+@!]\([^()'\n]*\)")
_EXTGLOB = b"shopt -s extglob"
_OF_FILES = re.compile(rb"^[ \t]*(?:rm|cp|mv|ls|chmod) [^\n;|&]*", re.MULTILINE)
# The grammar reads `[[ $A = b* && $C ]]` with `==` only, and `test $A == $B` before a `case` with `=` only.
_TEST, _TEST_COMMAND = re.compile(rb"\[\[ [^\n]{0,500}? \]\]"), re.compile(rb"\btest [^\n;&|]*")
# The grammar has the words of `[ $A \< b ]` and `[ \( $A = b \) ]` as those of `test` only, and reads
# `(((N++)); echo $N)` as arithmetic.
_COMMANDS = re.compile(rb"\[( [^\n]{0,500}? )\](?=[\s;|&)]|\Z)|(?<![$(])\((?=\(\([^()\n]*\)\)[ \t]*(?:[;\n]|&&|\|\|))")
_BEFORE_COMMAND = re.compile(rb"(?:^|[;&|({!`]|\b(?:if|elif|else|then|while|until|do))[ \t]*\Z")
_TEXTS = ("comment", "string_content", "raw_string", "ansi_c_string", "heredoc_body", "heredoc_content")
_MISREAD = re.compile(rb"\btest\s[^\n]*==|!\s+!")
_MOST_ROUNDS = 10
# The grammar ends a pattern with the letter after `${N}`.
_LETTER = re.compile(rb"(\"[^\"]*\"|\$\{\w+\})([A-Za-z0-9_]?)")
_COMPARED, _RIGHT = re.compile(rb"(?<=[!=]= )[^\s&|)]+"), re.compile(rb"(?:\bin|;;&?|;&)\s+\(?[^\s()]+\)")


@cache
def _parser() -> Any:
    try:
        import tree_sitter
        import tree_sitter_bash
    except ImportError as error:
        raise NotReadable(f"shell scripts are read with {error.name}, which is not installed", "", INSTALL) from None
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def parse(source: bytes, file: str, first_line: int = 1) -> Node:
    """Return the root of the syntax tree of a script.

    Raises:
        NotReadable: the script is not bash, with the line of the first error.
    """
    crashes = _CRASHES.search(source)
    if crashes is not None:
        line = source.count(b"\n", 0, crashes.start()) + first_line
        raise NotReadable("a character above U+FFFF follows {, which the grammar cannot read", f"{file}:{line}")
    typed, source = source, _REPLACED.sub(_with_slashes, source)
    source = _INLINE.sub(lambda found: b" " * len(found.group()), source)
    source = _PROMPT.sub(lambda found: b" " * len(found.group()), source)
    source, root = _in_braces(_with_plain_numbers(source))
    if root.has_error:
        source, root = _in_braces(_repaired(source, root))
    source, root = _with_ends(*_with_tests(*_with_blanks(source, root)))
    if root.has_error:
        raise _syntax_error(source, root, file, first_line, typed)
    return root


def text_of(node: Node) -> str:
    """Return the source text of a node."""
    return decoded(node.text)


def decoded(source: bytes) -> str:
    """Return a part of the parsed source as it was typed."""
    text = source.decode("utf-8", "replace")
    return text.translate(_SHOWN) if BLANK_LEFT in text or _SLASH in text else text


def line_of(node: Node) -> int:
    """Return the line of a node, counted from 1."""
    return int(node.start_point[0]) + 1


def errors(root: Node) -> Iterator[Node]:
    """Yield the error nodes of the grammar, in text order."""
    if root.type == "ERROR" or root.is_missing:
        yield root
    elif root.has_error:
        for child in root.children:
            yield from errors(child)


def _repaired(source: bytes, root: Node) -> bytes:
    """Return the script without dangling line continuations, which bash accepts and the grammar does not.

    Placeholders such as `<path>` become words. The text keeps its lines, so that their numbers stay valid.
    """
    source = _as_commands(source, root)
    source = _DECIMAL.sub(_AS_DECIMAL, _BLANK.sub(_as_word, source))
    source = _TEST.sub(lambda test: test.group().replace(b" = ", b" == "), source)
    source = _TEST_COMMAND.sub(lambda test: test.group().replace(b" == ", b" = "), source)
    source = _RIGHT.sub(_with_set, _TEST.sub(lambda test: _COMPARED.sub(_with_set, test.group()), source))
    if _EXTGLOB in source:
        source = _OF_FILES.sub(
            lambda line: _EXTENDED.sub(lambda each: b"'" + each.group() + b"'", line.group()), source
        )
    for _ in range(2):  # offset and length
        source = _OFFSET.sub(b"\\1\\2", source)
    root = _parser().parse(source).root_node
    for _ in range(_MOST_REPAIRS):
        changed = _without_loose_continuation(source, root)
        if changed is None:
            return source
        source = changed
        root = _parser().parse(source).root_node
        if not root.has_error:
            return source
    return source


def _as_commands(source: bytes, root: Node) -> bytes:
    """Rewrite `[ … ]` as `test …` where the grammar does not read it, and begin a subshell with a blank."""
    parsed = _parser().parse
    for _ in range(_MOST_ROUNDS):
        parts, end, at = [], 0, 0
        while (found := _COMMANDS.search(source, at)) is not None:
            at = found.start() + 1
            line = source[source.rfind(b"\n", 0, at - 1) + 1 : at - 1]
            if not _BEFORE_COMMAND.search(line[-80:]) or root.descendant_for_byte_range(at - 1, at).type in _TEXTS:
                continue
            if found[1] is None or parsed(found.group()).root_node.has_error:
                parts += [source[end : at - 1], b"( " if found[1] is None else b"test" + found[1]]
                end = at = found.end()
        if not parts:
            break
        source = b"".join(parts) + source[end:]
        root = parsed(source).root_node
        if not root.has_error:
            break
    return source


def _with_slashes(found: "re.Match[bytes]") -> bytes:
    """Return the start of `${A//PATTERN`; after `//` a slash is the first character of the pattern."""
    start, signs, pattern = found.groups()
    slash = _SLASH.encode()
    return start + signs[:1] + slash * (len(signs) > 1) + pattern.replace(b"/", slash)


def _with_plain_numbers(source: bytes) -> bytes:
    """Rewrite `$((…))` in defaults of variables as `$[ … ]`, of the same length."""
    changed = bytearray(source)
    for found in _DEFAULT_NUMBER.finditer(source):
        start, depth = found.end(), 2
        for at in range(start, min(len(source), start + 1000)):
            depth += {40: 1, 41: -1}.get(source[at], 0)
            if depth == 0:
                if source[at - 1 : at] == b")":
                    changed[start - 3 : start], changed[at - 1 : at + 1] = b"$[ ", b" ]"
                break
    return bytes(changed)


def _in_braces(source: bytes) -> tuple[bytes, Node]:
    """Return script and tree with a parse error fixed: in `${A}/$B/c` the grammar ends the word after the second `$`.

    Such variables are rewritten as `${B}`. The tree itself reports no error.
    """
    root = _parser().parse(source).root_node
    for _ in range(_MOST_ROUNDS):
        lost = [found for found in _VARIABLE.finditer(source) if _is_dropped(root, found.start())]
        if not lost:
            break
        for found in reversed(lost):
            source = source[: found.start()] + b"${" + found.group(1) + b"}" + source[found.end() :]
        root = _parser().parse(source).root_node
    return source, root


def _is_dropped(root: Node, at: int) -> bool:
    """Return whether a dollar sign before a name was parsed as a literal character."""
    leaf = root.descendant_for_byte_range(at, at + 1)
    return leaf is not None and leaf.type == "$" and leaf.parent is not None and leaf.parent.type == "concatenation"


def _with_blanks(source: bytes, root: Node) -> tuple[bytes, Node]:
    """Quote words that are an escaped blank: bash passes them on, the grammar drops them."""
    found = [each for each in _ESCAPED_BLANK.finditer(source) if _is_skipped(root, each.start())]
    if not found:
        return source, root
    for each in reversed(found):
        source = source[: each.start()] + b"'" + source[each.start() + 1 : each.end()] + b"'" + source[each.end() :]
    return source, _parser().parse(source).root_node


def _with_tests(source: bytes, root: Node) -> tuple[bytes, Node]:
    """Rewrite `! ! A` as `A`, and `test A == B` with `=`: the grammar takes what follows as words of a command."""
    for _ in range(_MOST_REPAIRS if _MISREAD.search(source) else 0):
        found = next(_misread(root), None)
        if found is None:
            break
        start, end, new = found
        source = source[:start] + new.ljust(end - start) + source[end:]
        root = _parser().parse(source).root_node
    return source, root


def _misread(node: Node) -> Iterator[tuple[int, int, bytes]]:
    """Yield start and end of the `==` of `test A == B`, and of `! !`, with what is written in its place."""
    name = node.child_by_field_name("name") if node.type == "command" else None
    if name is not None and name.text == b"test":
        yield from ((child.start_byte, child.end_byte, b"=") for child in node.children if child.type == "==")
    if name is not None and name.text == b"!" and node.parent.type == "negated_command":
        yield node.parent.start_byte, name.end_byte, b""
    for child in node.children:
        yield from _misread(child)


def _with_ends(source: bytes, root: Node) -> tuple[bytes, Node]:
    """End lines of several assignments (`A=1 B=2`) with a semicolon where the grammar joins them with a later line."""
    ends: set[int] = set()
    for found in _SECOND.finditer(source):
        node = root.descendant_for_byte_range(found.start(1), found.start(1) + 1)
        while node is not None and node.type not in ("variable_assignment", "program"):
            node = node.parent
        command = None if node is None else node.parent
        if command is not None and command.type == "command":
            ends.update(_ends_of(command.children, source))
    if not ends:
        return source, root
    for at in sorted(ends, reverse=True):
        source = source[:at] + b";" + source[at:]
    return source, _parser().parse(source).root_node


def _ends_of(parts: list[Node], source: bytes) -> Iterator[int]:
    """Yield where assignments before a command end that are in a line of their own."""
    for each, after in pairwise(part for part in parts if part.type != "comment"):
        if each.type == "variable_assignment" and _LINE_END.search(source[each.end_byte : after.start_byte]):
            yield each.end_byte


def _is_skipped(root: Node, at: int) -> bool:
    """Return whether the grammar took a backslash for a blank between words."""
    node = root.descendant_for_byte_range(at, at + 1)
    return node is not None and node.child_count > 0 and node.type not in ("string", "heredoc_body", "concatenation")


def _with_set(pattern: "re.Match[bytes]") -> bytes:
    """Return a pattern with the letter after an expansion as a set of one: `a${N}b` as `a${N}[b]`."""
    return _LETTER.sub(lambda found: found[1] + (b"[" + found[2] + b"]" if found[2] else b""), pattern.group())


def _as_word(blank: "re.Match[bytes]") -> bytes:
    inner = blank.group()[1:-1].replace(b" ", BLANK_SPACE.encode())
    return BLANK_LEFT.encode() + inner + BLANK_RIGHT.encode()


def _without_loose_continuation(source: bytes, root: Node) -> bytes | None:
    """Blank the last backslash near an error that ends a line before an empty line, a comment or the end."""
    for error in errors(root):
        for start in (source.find(b"\\\n", max(0, error.start_byte - 2)), source.rfind(b"\\\n", 0, error.end_byte + 2)):
            while start >= 0 and start <= error.end_byte + 400:
                rest = source[start + 2 :]
                line = rest.split(b"\n", 1)[0].strip()
                if not line or line.startswith(b"#"):
                    return source[:start] + b" \n" + rest
                start = source.find(b"\\\n", start + 2)
        if source.endswith(b"\\") and error.end_byte >= len(source) - 2:
            return source[:-1] + b" "
    return None


def _syntax_error(source: bytes, root: Node, file: str, first_line: int, typed: bytes) -> Exception:
    opened = _open_quote(source)
    if opened is not None:
        line, quote = opened
        return NotReadable(f"the {quote} quote opened here is never closed", f"{file}:{line + first_line - 1}")
    error = next(errors(root), root)
    if error.is_missing and error.parent is not None and error.type in _ENDS:
        return NotReadable(_ENDS[error.type], f"{file}:{line_of(error.parent) + first_line - 1}")
    line = line_of(error) + first_line - 1
    text = text_of(error).strip().split("\n")[0]
    if not text or text.encode() not in typed:  # a repair has changed it
        text = typed.split(b"\n")[line - first_line].decode("utf-8", "replace").strip()
    extended = _EXTENDED.search(source) if _EXTGLOB in source else None
    if extended is not None:
        line = source.count(b"\n", 0, extended.start()) + first_line
        what = f"a pattern of extglob, {extended.group().decode('utf-8', 'replace')}"
        return NotReadable(f"{what}, is read in rm, cp, mv, ls and chmod only", f"{file}:{line}")
    what = f"a {error.type} is missing" if error.is_missing else f"not bash: {text[:80]!r}"
    return NotReadable(what, f"{file}:{line}")


def _open_quote(source: bytes) -> tuple[int, str] | None:
    """Return line and kind of a quote that is not closed, or None; comments and escapes are skipped."""
    text, at, line, word_start = source.decode("utf-8", "replace"), 0, 1, True
    opened: tuple[int, str] | None = None
    while at < len(text):
        char = text[at]
        line += char == "\n"
        if opened is None and char == "#" and word_start:
            at = text.find("\n", at)
            if at < 0:
                return None
            continue
        if char == "\\" and (opened is None or opened[1] == '"'):
            line += text[at + 1 : at + 2] == "\n"
            at += 2
            continue
        if char in "'\"":
            if opened is None:
                opened = (line, char)
            elif opened[1] == char:
                opened = None
        word_start = char in " \t\n;&|("
        at += 1
    return opened
