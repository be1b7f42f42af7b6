"""Files that a script writes (`cat > FILE <<EOF`, `echo … >> FILE`, `tee FILE`) and reads again."""

from collections.abc import Iterator

from launcher.importing.shell.expand import Expander
from launcher.importing.shell.grammar import Node, text_of
from launcher.importing.shell.placeholders import shown
from launcher.importing.shell.state import State

_WRITES = (">", ">>", ">|", "&>", "&>>")


def targets(statement: Node, expander: Expander) -> list[tuple[str, bool]]:
    """Return the output files of a redirected statement, and whether each is appended to."""
    return [
        (shown(expander.text(child.child_by_field_name("destination"))), sign.endswith(">>"))
        for child, sign in _redirects(statement)
        if sign in _WRITES and child.child_by_field_name("destination") is not None
    ]


def source(statement: Node, expander: Expander) -> str | None:
    """Return the file that a statement reads (`< FILE`), None if it reads none."""
    for child, sign in _redirects(statement):
        destination = child.child_by_field_name("destination")
        if sign == "<" and destination is not None and destination.type != "process_substitution":
            return expander.text(destination)
    return None


def after_redirects(command: Node) -> Iterator[Node]:
    """Yield a command's words after its redirections (`run > log --lr 1`), which the grammar takes as more files."""
    statement = command.parent
    if statement is not None and statement.type == "redirected_statement":
        for child in statement.children:
            if child.type == "file_redirect":
                yield from child.children_by_field_name("destination")[1:]


def write(files: list[tuple[str, bool]], text: str | None, state: State) -> None:
    """Record the text written to files; None: unknown. Appending to unknown content gives unknown content."""
    for name, adds in files:
        old = state.heredocs.get(name) if adds else ""
        if text is None or old is None:
            state.heredocs.pop(name, None)
        elif not name.startswith("/dev/"):
            state.heredocs[name] = old + text


def read(name: str, state: State) -> str | None:
    """Return the text that the script has written to a file; None if the content is unknown."""
    return state.heredocs.get(shown(name))


def _redirects(statement: Node) -> Iterator[tuple[Node, str]]:
    """Yield the redirections of standard input and output with their operators, also that of `cat <<EOF > FILE`."""
    if statement.type == "file_redirect":
        yield from _signed(statement)
    for child in statement.children:
        if child.type == "file_redirect":
            yield from _signed(child)
        elif child.type == "heredoc_redirect":
            yield from _redirects(child)


def _signed(redirect: Node) -> Iterator[tuple[Node, str]]:
    descriptor = redirect.child_by_field_name("descriptor")
    if descriptor is None or text_of(descriptor) in ("0", "1"):
        yield redirect, next((child.type for child in redirect.children if not child.is_named), "")
