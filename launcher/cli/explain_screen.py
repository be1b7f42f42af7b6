"""`launch explain` as text: three lines first, then what differs between backends, then the rest on demand."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from launcher.report.text_page import Page
from launcher.syntax import escaped
from launcher.terminal import counted

_RULES = 4


def screen(tree: Mapping[str, Any], page: Page, *, every: bool) -> Iterator[str]:
    """Yield the explanation of one name.

    Args:
        tree: from `explain_names.explained`; the backend to be shown first is the first of its list.
        every: all versions and rules.
    """
    if "field" in tree:
        yield from _field(tree, page, every)
    elif "argument" in tree and tree.get("backends"):
        yield from _argument(tree, page, every)
    else:
        yield from _plain_tree(tree, page, every, skip=())


def _field(tree: Mapping[str, Any], page: Page, every: bool) -> Iterator[str]:
    default = "the backend's" if tree["default"] in (None, ()) else _plain(tree["default"])
    unit = f" ({tree['unit']})" if tree["unit"] else ""
    choices = f", one of {', '.join(map(str, tree['choices']))}" if tree["choices"] else ""
    minimum = f", at least {tree['minimum']}" if tree["minimum"] is not None else ""
    training = ", changes training" if tree["changes training"] else ""
    head = f"{tree['type']}{unit}{choices}{minimum}; default: {default}{training}"
    yield from _titled(tree["field"], head, page)
    yield from page.wrap(escaped(tree["meaning"]))
    yield from _backends(tree["backends"], page, every)
    yield from _rules(tree["rules"], page, every)
    skip = (
        "field",
        "type",
        "unit",
        "choices",
        "minimum",
        "changes training",
        "default",
        "meaning",
        "backends",
        "rules",
    )
    yield from _plain_tree(tree, page, every, skip=skip)


def _argument(tree: Mapping[str, Any], page: Page, every: bool) -> Iterator[str]:
    # One with a field first: keys of the same name lie in sections that no job has, too.
    entries = sorted(tree["backends"], key=lambda entry: not entry["fields"])
    newest = entries[0]
    default = f"; default {newest['default']}" if newest["default"] != "unknown" else ""
    own = f" {newest['argument']}" if newest["argument"] != tree["argument"] else ""
    yield from _titled(tree["argument"], f"{newest['type']}{default}: argument{own} of {newest['backend']}", page)
    meanings = tree["meaning"] or ["no meaning is known: its parser has no help for it"]
    yield from page.wrap(escaped(meanings[0].split("\n")[0]))
    paths = list(dict.fromkeys(path for each in tree["backends"] for path in each["fields"]))
    if paths:
        yield from page.wrap(f"override: {paths[0]}=VALUE" + (f" (also {', '.join(paths[1:])})" if paths[1:] else ""))
    else:
        yield from page.wrap(f"override: backend.args.{newest['argument']}=VALUE (no field of the job)")
    rest = {"meaning": meanings[1:]} if every else {}
    yield from _backends(entries, page, every)
    yield from _rules(tree["rules"], page, every)
    merged = {**tree, "meaning": rest.get("meaning")}
    yield from _plain_tree(merged, page, every, skip=("argument", "backends", "rules"))


def _titled(name: str, text: str, page: Page) -> Iterator[str]:
    first, *rest = page.wrap(escaped(text), f"{name}  ", "  ")
    yield first.replace(name, page.paint(name, "bold"), 1)
    yield from rest


def _backends(entries: Sequence[Mapping[str, Any]], page: Page, every: bool) -> Iterator[str]:
    """Yield a line for each backend's newest version, or for all versions with the same entry."""
    if every:
        yield page.paint("backends", "bold")
        for line in versions(entries):
            yield from page.wrap(escaped(line), "  ", "    ")
        return
    shown: dict[tuple[str, Any], Mapping[str, Any]] = {}
    for entry in entries:
        shown.setdefault((str(entry.get("backend") or entry["by"]).rpartition(" ")[0], entry.get("argument")), entry)
    for number, entry in enumerate(shown.values()):
        line = f"{entry.get('backend') or entry['by']}: {_line(entry)}"
        if number == 1:
            yield ""
        yield from page.wrap(escaped(line), "" if number == 0 else "  ", "  " if number == 0 else "    ")


def _rules(rules: Sequence[Mapping[str, Any]], page: Page, every: bool) -> Iterator[str]:
    if not rules:
        return
    if every:
        yield page.paint("rules", "bold")
        for rule in rules:
            yield from page.wrap(escaped(f"{rule['rule']}  {rule['severity']}  {rule['says']}"), "  ", "    ")
        return
    # Those of all backends say most about a field; a rule of one backend has its prefix.
    names = sorted(
        (str(rule["rule"]) for rule in rules), key=lambda name: not name.startswith(("PAR-", "BATCH-", "MOE-"))
    )
    text = ", ".join(names[:_RULES]) + (", …" if len(names) > _RULES else "")
    yield from page.wrap(f"{counted(len(rules), 'rule')}: {text}" + (" (--all)" if len(rules) > _RULES else ""))


# -- everything else


def _plain_tree(tree: Mapping[str, Any], page: Page, every: bool, *, skip: Sequence[str]) -> Iterator[str]:
    for key, value in tree.items():
        if key in skip or value in (None, "", (), []):
            continue
        if key in ("backends", "found") and isinstance(value[0], Mapping) and _has_versions(value):
            yield f"{key}:"
            for line in versions(value):
                yield from page.wrap(escaped(line), "  ", "    ")
        elif isinstance(value, list):
            yield from _list(key, value, page)
        else:
            yield from page.wrap(escaped(_plain(value)), f"{key}: ", "  ")


def _has_versions(entries: Sequence[Any]) -> bool:
    return all("says" in entry or "type" in entry for entry in entries)


def _list(key: str, items: Sequence[Any], page: Page) -> Iterator[str]:
    if not isinstance(items[0], Mapping) and sum(len(str(item)) for item in items) < 90:
        yield from page.wrap(escaped(", ".join(map(str, items))), f"{key}: ", "  ")
        return
    yield f"{key}:"
    rows = [[_plain(part) for part in item.values()] if isinstance(item, Mapping) else [str(item)] for item in items]
    for parts in rows:
        yield from page.wrap(escaped("  ".join(part for part in parts if part)), "  ", "    ")


def _plain(value: object) -> str:
    if value in (None, (), []):
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def versions(entries: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield one line for versions of a backend with the same entry, regardless of its source."""
    groups: list[tuple[list[str], str, Mapping[str, Any]]] = []
    for entry in entries:
        text = _line(entry)
        name, _, version = str(entry.get("backend") or entry["by"]).rpartition(" ")
        if groups and groups[-1][1] == text and groups[-1][0][0].rpartition(" ")[0] == name:
            groups[-1][0].append(f"{name} {version}")
        else:
            groups.append(([f"{name} {version}"], text, entry))
    for labels, text, entry in groups:
        name = labels[0].rpartition(" ")[0]
        versions = ", ".join(label.rpartition(" ")[2] for label in labels)
        source = f"  [{entry['source']}]" if entry.get("source") else ""
        yield f"{name} {versions}: {text}{source}"


def _line(entry: Mapping[str, Any]) -> str:
    if "says" in entry:
        parts = [
            entry["says"],
            f"(default {', '.join(entry['defaults'])})" if entry.get("defaults") else "",
            f"read for {', '.join(entry['read for'])}" if entry.get("read for") else "",
            *entry.get("notes", ()),
        ]
        return "; ".join(part for part in parts if part).replace("; (default", " (default")
    words = f"takes {entry['arity']}" if entry.get("arity") not in (None, "0", "1") else ""
    parts = [
        entry["type"],
        f"default {entry['default']}" if entry["default"] != "unknown" else "",
        entry.get("boolean style") or words,
        f"-> {entry['field']}" if entry.get("field") else "",
        f"only {', '.join(entry['commands'])}" if entry.get("commands") else "",
        entry.get("use", ""),
        entry.get("help", ""),
    ]
    return f"{entry['argument']}  " + "; ".join(part for part in parts if part)
