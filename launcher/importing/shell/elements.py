"""Elements of arrays: `A[1]=x`, `M[key]+=x`, also through name references and `printf -v A[1]`."""

from collections.abc import Callable

from launcher.importing.shell.arithmetic import NotArithmetic, evaluate
from launcher.importing.shell.placeholders import placeholder
from launcher.importing.shell.state import State, Variable
from launcher.syntax import is_count

_LONGEST_ARRAY = 10_000


def key_in(value: Variable, key: str, look_up: Callable[[str], str]) -> str:
    """Return the key of an element; for sparse lists it is computed, as for every list."""
    if not isinstance(value, dict) or key in value:
        return key
    try:
        return str(evaluate(key, look_up)) if all(is_count(each) for each in value) else key
    except NotArithmetic:
        return key


def set_element(
    state: State, name: str, key: str, text: str, look_up: Callable[[str], str], *, adds: bool = False
) -> None:
    """Assign an element of an array; with an unknown index, all of the array is unknown."""
    old = state.get(name)
    if isinstance(old, dict):
        key = key_in(old, key, look_up)
        found = {**old, key: (old.get(key, "") if adds else "") + text}
        last = next(reversed(old), "")
        if is_count(key) and is_count(last) and int(key) < int(last) and all(is_count(each) for each in found):
            found = dict(sorted(found.items(), key=lambda item: int(item[0])))
        state.set(name, found)
        return
    items = [old] if isinstance(old, str) else list(old or [])
    try:
        at = evaluate(key, look_up)
    except NotArithmetic:
        at = _LONGEST_ARRAY
    at += len(items) if at < 0 else 0
    if at >= _LONGEST_ARRAY:
        state.set(name, placeholder(f"${{{name}[@]}}", computed=True))
    elif at >= 0:
        before = items[at] if adds and at < len(items) else ""
        state.set(name, with_item(items, at, before + text))


def with_item(items: list[str], at: int, text: str) -> Variable:
    """Return an array with an element set; where some before it are not, by index as an associative one is."""
    if at <= len(items):
        return [*items[:at], text, *items[at + 1 :]]
    return {**{str(index): item for index, item in enumerate(items)}, str(at): text}
