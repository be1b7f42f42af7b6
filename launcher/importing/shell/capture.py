"""`$(…)` with statically known output: echo, pwd, dirname, basename, seq, expr, bc, `cd X && pwd`."""

import re

from launcher.importing.shell import files
from launcher.importing.shell.builtins import Builtins, Stop
from launcher.importing.shell.filters import FILTERS, grep
from launcher.importing.shell.grammar import Node, text_of
from launcher.importing.shell.placeholders import emptied, has_output, is_open
from launcher.importing.shell.programs import PROGRAMS
from launcher.importing.shell.scripts import heredoc, heredoc_programs

# Filter arguments that only join lines and blanks, and so leave unset variables in a text unchanged.
_BLANKS_ONLY = re.compile(r"(?:-[esEr] |s(?=/)|\[\[?:space:\]\]?|\\[nst]|[\s*+/g;])*")
_EVALUATED = (
    *("if_statement", "case_statement", "for_statement", "c_style_for_statement", "list", "variable_assignment"),
    *("function_definition", "declaration_command", "test_command", "negated_command", "subshell"),
    *("compound_statement", "while_statement", "variable_assignments"),
)
# Commands that print, relevant in a function whose output is captured.
PRINTING = frozenset({*PROGRAMS, *FILTERS, "pwd", "cat"})
# Builtins that decide the status of what is captured.
_OF_STATUS = frozenset({"false", "exit", "test"})
_TRIVIAL = frozenset({"$(", ")", "`", "comment", "\n", ";", "&&"})


def captured(node: Node, interpreter: Builtins) -> str | None:
    """Return the output of a command substitution; None if it is not known without running it."""
    state = interpreter.state
    folders = (state.directory, state.previous_directory)
    try:
        nodes = [child for child in node.children if child.type not in _TRIVIAL]
        if any(_is_evaluated(child) for child in nodes):
            return _evaluated(nodes, interpreter)
        output = _statements(nodes, interpreter)
        interpreter.state.substituted = output != "" or not nodes or not _searches(nodes[-1])
        return output
    finally:
        state.directory, state.previous_directory = folders


def _is_evaluated(node: Node) -> bool:
    if node.type == "list":
        return not _is_sequence(node)
    return node.type in _EVALUATED or (node.type == "command" and text_of(node.children[0]) in _OF_STATUS)


def _evaluated(nodes: list[Node], interpreter: Builtins) -> str | None:
    status: list[bool | None] = [True]

    def run() -> None:
        try:
            status.append(interpreter.block(nodes))
        except Stop:
            status.append(interpreter.state.status in (0, None))
            raise

    output = interpreter.printed_by(run)
    interpreter.state.substituted = status[-1] is not False
    return output


def _searches(node: Node) -> bool:
    """Return whether a statement is `grep`, which fails where it prints nothing."""
    last = node.children[-1] if node.type == "pipeline" else node
    return re.match(r"e?grep\s", text_of(last)) is not None


def printed(node: Node, interpreter: Builtins) -> str | None:
    """Return the output of a command or pipeline; None if it is not known without running it."""
    return _statement(node, interpreter, None)


def _statements(nodes: list[Node], interpreter: Builtins) -> str | None:
    output = ""
    for node in nodes:
        printed = _statement(node, interpreter, None)
        if printed is None:
            return None
        output += printed
    return output


def _statement(node: Node, interpreter: Builtins, given: str | None) -> str | None:
    if node.type == "list" and _is_sequence(node):
        return _statements([child for child in node.children if child.is_named], interpreter)
    if node.type == "redirected_statement":
        text = content(node, interpreter, given)
        return "" if is_redirected(node) else text
    if node.type == "file_redirect":  # $(< FILE)
        name = files.source(node, interpreter.expander)
        return None if name is None else files.read(name, interpreter.state)
    if node.type == "pipeline":
        for child in (child for child in node.children if child.is_named):
            given = _statement(child, interpreter, given)
            if given is None:
                return None
        return given
    if _is_evaluated(node) and given is None:
        return interpreter.printed_by(lambda: interpreter.block([node]))
    if node.type != "command":
        return None
    heredoc_text = next((child for child in node.children if child.type == "herestring_redirect"), None)
    return _command(
        node,
        interpreter,
        given if heredoc_text is None else interpreter.expander.text(heredoc_text.children[-1]) + "\n",
    )


def content(node: Node, interpreter: Builtins, given: str | None = None, *, without_last: bool = False) -> str | None:
    """Return the output of a redirected statement, whatever its target; None if unknown.

    Args:
        without_last: of the programs after `|` on the first line of a here-document, not that of the last one.
    """
    body, heredoc_text = node.child_by_field_name("body"), heredoc(node, interpreter.expander)
    name = files.source(node, interpreter.expander)
    given = (
        heredoc_text if heredoc_text is not None else files.read(name, interpreter.state) if name is not None else given
    )
    text = None if body is None else _statement(body, interpreter, given)
    for part in heredoc_programs(node)[: -1 if without_last else None]:
        if text is not None:
            text = _statement(part, interpreter, text)
    return text


def _is_sequence(node: Node) -> bool:
    """Return whether a list is like `cd X && pwd`: commands only, no tests."""
    parts = [child for child in node.children if child.is_named]
    is_query = any(part.type not in ("command", "list", "redirected_statement", "pipeline") for part in parts)
    is_query = is_query or re.match(r"test\s", text_of(parts[0])) is not None
    return not is_query and not any(child.type == "||" for child in node.children)


def is_redirected(node: Node) -> bool:
    """Return whether the output of a statement is redirected to a file or to standard error."""
    outs = [child for child in node.children if child.type == "file_redirect"]
    return any(re.fullmatch(r"1?>>?\s*(?!&1).+|&>.+", text_of(out), re.DOTALL) for out in outs)


def _command(node: Node, interpreter: Builtins, given: str | None) -> str | None:
    skipped = ("comment", "file_redirect", "herestring_redirect", "variable_assignment")
    parts = (child for child in node.children if child.is_named and child.type not in skipped)
    words = [word for part in parts for word in interpreter.expander.words(part)]
    return _printed(words, interpreter, given) if words else None


def answered(pipeline: Node, interpreter: Builtins) -> bool | None:
    """Return whether `echo "$A" | grep -q b` succeeds; None for other pipelines and for unknown text."""
    *first, last = [child for child in pipeline.children if child.is_named]
    name = last.child_by_field_name("name") if last.type == "command" else None
    if name is None or text_of(name) not in ("grep", "egrep"):
        return None
    given: str | None = None
    negated = bool(first) and first[0].type == "negated_command"  # the grammar applies `!` to the first program only
    for part in [*first[0].children[-1:], *first[1:]] if negated else first:
        given = _statement(part, interpreter, given)
        if given is None or has_output(given):
            return None
    words = [word for child in last.children[1:] if child.is_named for word in interpreter.expander.words(child)]
    extended = ["-E"] if text_of(name) == "egrep" else []
    lines = None if any(is_open(word) for word in words) else grep([*extended, *words], emptied(given or ""))
    return None if lines is None else bool(lines) != negated


def _printed(words: list[str], interpreter: Builtins, given: str | None) -> str | None:
    name, arguments = words[0], words[1:]
    if name in interpreter.state.functions:
        return interpreter.printed_by(lambda: interpreter._function(words))
    if name == "cd" and arguments:
        interpreter.state.change_directory(arguments[-1])
        return ""
    if name == "pwd":
        return interpreter.state.directory + "\n"
    if name == "cat" and len(arguments) > 1:
        texts = [given if each == "-" else files.read(each, interpreter.state) for each in arguments]
        return None if None in texts else "".join(text for text in texts if text is not None)
    content = files.read(arguments[-1], interpreter.state) if arguments and name in ("cat", *FILTERS) else None
    if content is not None:  # a file that the script wrote itself
        given, arguments = content, arguments[:-1]
    command = PROGRAMS.get(name)
    if command is None or (name != "echo" and any(has_output(argument) for argument in arguments)):
        return None
    if name not in ("echo", "dirname", "basename", "realpath") and any(is_open(argument) for argument in arguments):
        return None
    if name in FILTERS and is_open(given or "") and not _BLANKS_ONLY.fullmatch(" ".join(arguments)):
        return None
    return command(arguments, given)


def piped(pipeline: Node, interpreter: Builtins) -> str | None:
    """Return the input of the last program of a pipeline; None if unknown."""
    given = given_by([child for child in pipeline.children if child.is_named][:-1], interpreter)
    return None if given is None or is_open(given) else given


def given_by(programs: list[Node], interpreter: Builtins) -> str | None:
    """Return the output of programs that are piped into each other; None if unknown."""
    given: str | None = None
    for part in programs:
        given = _statement(part, interpreter, given)
        if given is None:
            return None
    return given


def of_process(node: Node, interpreter: Builtins) -> str | None:
    """Return the output of `<(…)`; None if unknown."""
    return _statements([each for each in node.children if each.is_named and each.type != "comment"], interpreter)


def read_by(redirected: Node, interpreter: Builtins, heredoc_text: str | None) -> str | None:
    """Return the input of a redirected loop or `read` (`<<<`, `<<EOF`, `< FILE`); None if unknown."""
    body = redirected.child_by_field_name("body")
    if body is None or not re.search(r"\b(read|mapfile|readarray)\b", text_of(body)):
        return None
    content = files.source(redirected, interpreter.expander)
    text = heredoc_text if content is None else files.read(content, interpreter.state)
    for child in redirected.children:
        if child.type == "herestring_redirect":
            text = interpreter.expander.text(child.children[-1]) + "\n"
        elif child.type == "file_redirect" and child.children[-1].type == "process_substitution":
            text = of_process(child.children[-1], interpreter)
    # A loop over unknown input has an unknown number of iterations.
    return None if text is None or (body.type != "command" and is_open(text)) else text
