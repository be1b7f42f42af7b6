"""Callbacks of a `TrainConfig`: those that MindFormers' pynative trainer builds and calls, in each of its versions.

It looks `type` up among all registered callbacks and calls them with its own arguments (pynative/trainer/utils.py:612,
pynative/callback/callback.py:318 @2.1.0). Those of the static graph and of MindSpore take other arguments and end in a
TypeError when training begins (core/callback/callback.py @2.1.0); its own loss, checkpoint and monitor callbacks are in
every run and not registered. The static graph's file, which is written, has none of them: they log and train nothing.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from backends.mindformers.pynative_keys import condition_notes
from launcher.catalogue.catalogue import Catalogue, suggest
from launcher.mapping.backend import FileNote

_SECTION = "callbacks"


def callback_notes(tree: Mapping[str, Any], catalogue: Catalogue, version: str) -> Iterator[FileNote]:
    """Yield what a version refuses of the callbacks of a `TrainConfig`, and those that the static graph lacks."""
    if _SECTION not in tree:
        return
    callbacks = tree[_SECTION]
    if not isinstance(callbacks, list):
        yield FileNote(key=_SECTION, text="must be a list, each entry with its type (or leave it out)", refused=True)
        return
    for callback in callbacks:
        yield from _of_one(callback, catalogue, version)


def _of_one(callback: Any, catalogue: Catalogue, version: str) -> Iterator[FileNote]:
    name = callback.get("type") if isinstance(callback, Mapping) else None
    if not isinstance(callback, Mapping) or not isinstance(name, str):
        yield FileNote(key=_SECTION, text=f"has an entry without a type: {callback!r}"[:200], refused=True)
        return
    key = f"{_SECTION}.{name}"
    known = [each.removeprefix(f"{_SECTION}.") for each in catalogue.open_sections if each.startswith(f"{_SECTION}.")]
    if "auto_register" in callback:
        yield FileNote(key=key, text="is a class of a module that is not read here: dropped")
    elif name not in known:
        own = " or ".join(known) or f"none in {version}"
        yield FileNote(key=key, text=f"is no callback of the pynative trainer, which has {own}", refused=True)
    else:
        wrong = [*_unknown(key, callback, catalogue, version), *condition_notes(key, callback, catalogue, version)]
        yield from wrong or [FileNote(key=key, text="logs attention logits of the pynative trainer only: dropped")]


def _unknown(key: str, callback: Mapping[str, Any], catalogue: Catalogue, version: str) -> Iterator[FileNote]:
    name = key.removeprefix(f"{_SECTION}.")
    own = [each.removeprefix(f"{key}.") for each in catalogue.names() if each.startswith(f"{key}.")]
    if name not in catalogue.strict_types.get(_SECTION, ()):
        return
    for at in callback:
        if at != "type" and at not in own:
            near = suggest(str(at), own, 1)
            hint = f" (did you mean {near[0]}?)" if near else f", which takes {', '.join(own) or 'none'}"
            yield FileNote(key=f"{key}.{at}", text=f"is no parameter of {name} in {version}{hint}", refused=True)
