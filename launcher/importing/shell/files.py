"""Files that a script writes, copies or edits (`cat > FILE <<EOF`, `tee FILE`, `sed -i`) and reads again."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from launcher.importing.shell.expand import Expander
from launcher.importing.shell.grammar import Node, text_of
from launcher.importing.shell.placeholders import shown
from launcher.importing.shell.state import Change, State

# Files that a script uses: configurations, and other scripts.
_FOLLOWED = (".yaml", ".yml", ".json", ".sh", ".bash", ".env")
_LARGEST = 2_000_000
_MOST_ABOVE = 8
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


def is_followed(name: str) -> bool:
    """Return whether a file may be one that the script uses: a configuration or another script."""
    return name.endswith(_FOLLOWED)


def write(files: list[tuple[str, bool]], text: str | None, state: State, change: Change) -> None:
    """Record the text written to files; None: unknown. Appending to unknown content gives unknown content."""
    for name, adds in files:
        if name.startswith("/dev/"):
            continue
        old = _before(name, state) if adds else ""
        name = state.path(name)
        state.changes.pop(name, None)
        state.heredocs.pop(name, None)
        if text is None or old is None:
            state.changes[name] = change
        else:
            state.heredocs[name] = old + text


def _before(name: str, state: State) -> str | None:
    """Return the content of a file that is appended to; what is nowhere is empty."""
    change = state.changes.get(state.path(name))
    if change is not None:
        return "" if change.removes else None
    text = content_of(name, state)
    is_nowhere = is_followed(name) and not any(path.exists() for path in candidates(state.path(name), state.folder))
    return "" if text is None and is_nowhere else text


def remove(name: str, state: State, change: Change) -> None:
    """Record that a file is removed."""
    name = state.path(name)
    for inside in [each for each in state.heredocs if f"{each}/".startswith(f"{name}/")]:
        del state.heredocs[inside]
        state.changes[inside] = replace(change, removes=True)
    state.changes[name] = replace(change, removes=True)
    state.made = {each: is_folder for each, is_folder in state.made.items() if not f"{each}/".startswith(f"{name}/")}


def read(name: str, state: State) -> str | None:
    """Return the text that the script has written to a file; None if the content is unknown."""
    return content_of(name, state) if state.follows else state.heredocs.get(state.path(name))


def content_of(name: str, state: State) -> str | None:
    """Return the content of a file that the script copies or edits: what it wrote, or what is on disk."""
    name = state.path(name)
    if name in state.heredocs or name in state.changes or not is_followed(name):
        return state.heredocs.get(name)
    for path in candidates(name, state.folder):
        try:
            if path.is_file() and path.stat().st_size <= _LARGEST:
                return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return None
    return None


def candidates(name: str, folder: Path | str | None) -> list[Path]:
    """Return where a file that a script names may be."""
    path = Path(name).expanduser()
    if path.is_absolute() or folder is None:
        return [path]
    # Scripts are started from the root of a repository: the parent folders of the script are tried, too.
    return [path, *(parent / path for parent in (Path(folder), *Path(folder).resolve().parents[:_MOST_ABOVE]))]


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
