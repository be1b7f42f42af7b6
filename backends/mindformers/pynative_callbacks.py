"""Callbacks of a `TrainConfig`: those that MindFormers' pynative trainer builds and calls, in each of its versions.

It looks `type` up among all registered callbacks and calls them with its own arguments (pynative/trainer/utils.py:612,
pynative/callback/callback.py:318 @2.1.0). Those of the static graph and of MindSpore take another one and end in a
TypeError when training begins (core/callback/callback.py @2.1.0); its own loss, checkpoint and monitor callbacks are in
every run and not registered. The static graph's file, which is written, has none of them: they log and train nothing.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from launcher.catalogue.versions import in_range
from launcher.mapping.backend import FileNote
from launcher.records import dataclass

_SINCE = "1.9"
_SECTION = "callbacks"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Key:
    """A parameter of a callback.

    Attributes:
        since: version that has it first.
        takes: whether its constructor takes a value, and what it takes in words.
    """

    since: str
    takes: Callable[[Any], bool]
    words: str


_INTERVAL = _Key(
    since="2.0", takes=lambda value: isinstance(value, int) and value > 0, words="must be a whole number above 0"
)
_LOGS = _Key(since="2.1", takes=lambda value: isinstance(value, bool), words="must be true or false")
# pynative/callback/max_logits_monitor.py:37, :113 @2.0.0 and :37, :122 @2.1.0; 1.9.0 registers none.
_KNOWN: Mapping[str, Mapping[str, _Key]] = {
    "MaxLogitsMonitor": {"step_interval": _INTERVAL, "enable_logging": _LOGS},
    "MaxLogitsReset": {},
}
_REGISTERED_SINCE = "2.0"


def callback_notes(tree: Mapping[str, Any], version: str) -> Iterator[FileNote]:
    """Yield what a version refuses of the callbacks of a `TrainConfig`, and those that the static graph lacks."""
    if not in_range(version, _SINCE, None):
        text = f"is a section of the pynative trainer, which {_SINCE} and later have"
        yield FileNote(key="parallelism", text=text, refused=True)
        return
    if _SECTION not in tree:
        return
    callbacks = tree[_SECTION]
    if not isinstance(callbacks, list):
        yield FileNote(key=_SECTION, text="must be a list, each entry with its type (or leave it out)", refused=True)
        return
    for callback in callbacks:
        yield from _of_one(callback, version)


def _of_one(callback: Any, version: str) -> Iterator[FileNote]:
    name = callback.get("type") if isinstance(callback, Mapping) else None
    if not isinstance(callback, Mapping) or not isinstance(name, str):
        yield FileNote(key=_SECTION, text=f"has an entry without a type: {callback!r}"[:200], refused=True)
        return
    key = f"{_SECTION}.{name}"
    known = _KNOWN if in_range(version, _REGISTERED_SINCE, None) else {}
    if "auto_register" in callback:
        yield FileNote(key=key, text="is a class of a module that is not read here: dropped")
    elif name not in known:
        own = " or ".join(known) or f"none in {version}"
        yield FileNote(key=key, text=f"is no callback of the pynative trainer, which has {own}", refused=True)
    else:
        keys = {at: value for at, value in known[name].items() if in_range(version, value.since, None)}
        wrong = [
            FileNote(key=f"{key}.{at}", text=why, refused=True)
            for at, value in callback.items()
            if at != "type" and (why := _why_not(keys.get(at), value, name, version))
        ]
        yield from wrong or [FileNote(key=key, text="logs attention logits of the pynative trainer only: dropped")]


def _why_not(key: _Key | None, value: Any, name: str, version: str) -> str:
    """Return why the constructor does not take a value; empty: it does."""
    if key is None:
        return f"is no parameter of {name} in {version}"
    return "" if key.takes(value) else f"{key.words}, not {value!r}"
