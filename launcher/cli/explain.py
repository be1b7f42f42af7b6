"""`launch explain`: explains a name from any output, and what it maps to."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from launcher.catalogue.catalogue import suggest
from launcher.cli.explain_names import explained, known_names, load_all
from launcher.cli.options import parse, parser, print_json
from launcher.cli.refusal import WrongUse
from launcher.job import suggest_field
from launcher.mapping.backend import Backend, backend_names, get_backend

_EXAMPLES = """\
launch explain parallel.tp
  launch explain --max_epochs
  launch explain MAP-UNSUPPORTED
  launch explain HCCL_CONNECT_TIMEOUT
  launch explain --trace parallel.tp=3 +recipe=qwen3_8b backend={cuda}"""


def main(words: list[str]) -> int:
    """Explain a name; exit 2 if it is unknown."""
    made = parser(
        "explain",
        "Explain a field, an option of an executor, a rule or other finding, a native argument of any backend version, "
        "an argument of a launcher (torchrun, msrun …) or an environment variable.",
        _EXAMPLES,
        overrides=False,
    )
    made.add_argument("name", metavar="NAME")
    made.add_argument("--backend", metavar="B", help="only this backend")
    made.add_argument(
        "--trace",
        action="store_true",
        help="trace an override, field, native argument or rule through the program: where the field and the rows "
        "of the mapping tables are declared, the arguments, the rules that read them; with further overrides also what "
        "that job writes, and its findings",
    )
    made.add_argument("overrides", nargs="*", default=[], metavar="OVERRIDE", help="with --trace: the job")
    made.add_argument("--config-dir", action="append", default=[], metavar="DIR", help="folder with your own recipes")
    words, typed = _without_dashes(words)
    options = parse(made, words)

    if options.backend not in (None, *backend_names()):
        raise WrongUse(f"no backend {options.backend!r}", *backend_names())
    backends = [get_backend(name) for name in backend_names() if options.backend in (None, name)]
    load_all(backends)
    if options.trace:
        return _traced(typed or options.name, backends, options)
    if options.overrides:
        raise WrongUse("overrides need --trace", f"launch explain --trace {' '.join(words)}")
    found = list(explained(typed or options.name, backends))
    if not found:
        raise _unknown(options.name, backends)
    if options.json:
        print_json({**found[0], **({"also": found[1:]} if len(found) > 1 else {})})
        return 0
    for number, tree in enumerate(found):
        if number:
            print()
        _show(tree)
    return 0


def _traced(name: str, backends: Sequence[Backend], options: argparse.Namespace) -> int:
    from launcher.cli.explain_trace import show, trace, word_of

    word = word_of(name, backends)
    if not word.known:
        plain = name.partition("=")[0].lstrip("+~-")
        if next(explained(plain, backends), None) is None:
            raise _unknown(plain, backends)
        raise WrongUse(f"{plain} is not a field, native argument or rule of a job", f"launch explain {plain}")
    found = trace(word, backends, options.overrides, options.config_dir)
    if options.json:
        print_json({key: value for key, value in found.items() if key != "texts"})
    else:
        show(found)
    return 0


def _unknown(name: str, backends: Sequence[Backend]) -> WrongUse:
    near = _near(name, backends) or ("launch args BACKEND lists native arguments", "parallel")
    return WrongUse(f"no field, argument, variable or rule is called {name!r}", *near)


def _without_dashes(words: Sequence[str]) -> tuple[list[str], str]:
    """Return the arguments without dashes before the name, and the name as typed (`--tensor-model-parallel-size`)."""
    own = ("--json", "--backend", "--help", "--trace", "--config-dir")
    typed = next((word for word in words if word.startswith("--") and word.partition("=")[0] not in own), "")
    return [word.lstrip("-") if word == typed else word for word in words], typed


def _near(name: str, backends: Sequence[Backend]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*suggest(name, known_names(backends)), *suggest_field(name)]))[:4]


# -- text output


def _show(tree: Mapping[str, Any]) -> None:
    for key, value in tree.items():
        if key in ("backends", "found") and value and isinstance(value[0], Mapping):
            print(f"{key}:")
            for line in _versions(value):
                print(f"  {line}")
        elif isinstance(value, list):
            _show_list(key, value)
        elif value not in (None, "", ()):
            print(f"{key}: {_plain(value)}")


def _show_list(key: str, items: Sequence[Any]) -> None:
    if not items:
        return
    if not isinstance(items[0], Mapping) and sum(len(str(item)) for item in items) < 90:
        print(f"{key}: {', '.join(map(str, items))}")
        return
    print(f"{key}:")
    for item in items:
        parts = [_plain(part) for part in item.values()] if isinstance(item, Mapping) else [str(item)]
        print("  " + "  ".join(part for part in parts if part))


def _plain(value: object) -> str:
    if value in (None, (), []):
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _versions(entries: Sequence[Mapping[str, Any]]) -> Iterator[str]:
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
