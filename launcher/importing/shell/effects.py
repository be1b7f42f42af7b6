"""Whether a part of a script affects the started commands, so that an undecided condition needs a warning."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from launcher.importing.shell.grammar import Node, text_of
from launcher.importing.shell.state import State

_ENDLESS = re.compile(r"\b(while\s+(true|:|\(\(\s*1\s*\)\)|\[+\s+1\s)|until\s+false|for\s*\(\(\s*;\s*;)")

_HARMLESS_NAMES = """
echo printf : true false exit return break continue mkdir rm cp mv touch chmod ln cat tee sleep wait
kill pkill pip conda cd pushd popd trap ulimit ls git wget curl tar unzip read grep sed awk head
tail du df date nvidia-smi npu-smi source . ps test command which type set shift find docker apt
apt-get yum bash sh
"""
_HARMLESS = frozenset(_HARMLESS_NAMES.split())

# Commands that set the variables which they name.
_SETTING = frozenset({"read", "mapfile", "readarray", "getopts", "let"})
_NAMED = re.compile(r"(?<![^\s\"'])[A-Za-z_]\w*(?![^\s\"'[])")
# A function that may change variables which its arguments name.
_REFERRING = re.compile(r"\b(?:local|declare|typeset)\s+-\w*n|\bprintf\s+-v|\beval\b|\bread\b|\bexport\b")
_COUNTED = re.compile(r"[A-Za-z_]\w*(?=\s*(?:(?:[-+*/%&|^]|<<|>>)?=(?!=)|\+\+|--))|(?<=\+\+|--)[A-Za-z_]\w*")

# Commands that only query the machine: their exit code is unknown here, and they are not imported.
_QUESTION_NAMES = """
grep egrep command which type hash nvidia-smi npu-smi ps pgrep mountpoint nc ping curl wget ls diff
cmp git ssh read timeout conda pip docker id lsof kill pkill mkdir test find stat
"""
QUESTIONS = frozenset(_QUESTION_NAMES.split())
# Those of them that may start a training: `timeout 24h torchrun …`, `docker run IMAGE …`, `conda run …`.
CARRIERS = frozenset({"timeout", "docker", "ssh", "conda"})

# Of both, those that print nothing.
_SILENT_NAMES = """
: true false exit return break continue mkdir rm mv touch chmod ln sleep wait kill cd trap source . test shift hash
"""
_SILENT = frozenset(_SILENT_NAMES.split())
_LOOPS = ("for_statement", "c_style_for_statement", "while_statement")

# Programs that prepare the command after `&&`; their unknown exit code is assumed to be 0.
_PREPARING_NAMES = """
source . conda mamba micromamba pip git wget curl tar unzip kill pkill docker podman ssh scp rsync timeout
nvidia-smi npu-smi ls ps
"""
_PREPARING = frozenset(_PREPARING_NAMES.split())


def prepares(node: Node) -> bool:
    """Return whether a statement is a program that prepares the next one (`conda activate x && …`), not a query."""
    while node.type in ("list", "redirected_statement"):
        inner = [child for child in node.children if child.is_named and not child.type.endswith("_redirect")]
        node = inner[-1]
    name = node.child_by_field_name("name") if node.type == "command" else None
    return name is not None and text_of(name) in _PREPARING


def prints_answer(words: Sequence[str]) -> bool:
    """Return whether a program that queries the machine may print its answer."""
    is_quiet = any(re.fullmatch("-[a-zA-Z]*q[a-zA-Z]*|--quiet|--silent", word) for word in words[1:])
    return not is_quiet and words[0] not in _SILENT


def is_question(node: Node) -> bool:
    """Return whether a statement is a condition: it may be evaluated for its status alone."""
    if text_of(node).startswith("(("):
        return _COUNTED.search(text_of(node)) is None
    if node.type in ("list", "negated_command", "pipeline", "redirected_statement", "compound_statement", "subshell"):
        inner = (child for child in node.children if child.is_named and not child.type.endswith("_redirect"))
        return all(is_question(child) for child in inner)
    name = node.child_by_field_name("name") if node.type == "command" else None
    return node.type == "test_command" or (
        name is not None and text_of(name) in (QUESTIONS - CARRIERS) | {"[", "true", "false", ":"}
    )


def jumps(nodes: Iterable[Node]) -> set[str]:
    """Return how statements end what is around them: exit, fail (`return 1`), return, break, continue."""
    found: set[str] = set()
    for node in nodes:
        name = node.child_by_field_name("name") if node.type == "command" else None
        called = "" if name is None else text_of(name)
        if called in ("exit", "return", "break", "continue"):
            status = text_of(node).partition(" ")[2].strip()
            found.add("fail" if called == "return" and status not in ("", "0", "$?") else called)
        elif node.type in _LOOPS:
            found |= jumps(node.children) - {"break", "continue"}
        elif node.type != "function_definition":
            found |= jumps(node.children)
    return found


def has_effect(nodes: Iterable[Node], *, prints: bool = False) -> bool:
    """Return whether statements set variables or start a program other than the utilities in `_HARMLESS`.

    Args:
        prints: what they print is captured: an effect as well.
    """
    for node in nodes:
        if node.type == "heredoc_redirect":
            return True
        if node.type in ("variable_assignment", "declaration_command", "unset_command", "function_definition"):
            return True
        if text_of(node).startswith("((") and _COUNTED.search(text_of(node)):
            return True
        if node.type == "command":
            name = node.child_by_field_name("name")
            if name is None or text_of(name) not in _HARMLESS or (prints and text_of(name) not in _SILENT):
                return True
            if text_of(name) == "read" and any(child.type == "herestring_redirect" for child in node.children):
                return True
            if re.match(r"printf\s+-v|set\s+--|(cp|mv|sed|tee)\s.*\.ya?ml\b", text_of(node)):
                return True
        elif has_effect(node.children, prints=prints and not _to_file(node)):
            return True
    return False


def _to_file(node: Node) -> bool:
    """Return whether the output of a statement goes to a file or to standard error."""
    redirects = (text_of(child) for child in node.children if child.type == "file_redirect")
    return any(re.match(r"1?>>?\s*(?!&1)|&>", redirect) for redirect in redirects)


def assigned(nodes: Iterable[Node], functions: Mapping[str, Node], entered: set[str] | None = None) -> Iterator[str]:
    """Yield the names of the variables that statements assign, also in the functions that they call.

    Args:
        entered: functions that are read already; each is read once.
    """
    entered = set() if entered is None else entered
    for node in nodes:
        if node.type == "variable_assignment":
            name = node.child_by_field_name("name")
            yield text_of(name.children[0] if name.type == "subscript" else name)
            continue
        text = text_of(node)
        if text.startswith(("((", "$((")):
            yield from _COUNTED.findall(text)
        name = node.child_by_field_name("name") if node.type == "command" else None
        called = "" if name is None else text_of(name)
        if called in _SETTING or text.startswith("printf -v"):
            yield from _COUNTED.findall(text) if called == "let" else _NAMED.findall(text)[1:]
        elif called in functions and _REFERRING.search(text_of(functions[called])):
            yield from _NAMED.findall(text)[1:]
        if called in functions and called not in entered:
            entered.add(called)
            yield from assigned([functions[called]], functions, entered)
        yield from assigned(node.children, functions, entered)


def runs_for_ever(node: Node, state: State) -> bool:
    """Return whether a statement, or a function that it calls, loops without an end and starts no training.

    In the background it is a watch beside the training (`while true; do nvidia-smi; sleep 60; done &`).
    """
    bodies, open_ = {"": node}, [node]
    while open_:
        text = text_of(open_.pop())
        for name, body in state.functions.items():
            if name not in bodies and re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text):
                bodies[name] = body
                open_.append(body)
    return any(_ENDLESS.search(text_of(each)) for each in bodies.values()) and not any(
        state.starts_training(each) for each in bodies.values()
    )
