"""`launch explain`: explains a name from any output, and what it maps to."""

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from launcher.catalogue.catalogue import suggest
from launcher.cli.dispatch import VERBS
from launcher.cli.explain_names import explained, known_names, load_all
from launcher.cli.explain_screen import screen
from launcher.cli.name_search import alias_of, search_names
from launcher.cli.options import parse, parser, print_json
from launcher.cli.refusal import WrongUse
from launcher.job import suggest_field
from launcher.mapping.backend import Backend, backend_names, get_backend
from launcher.nearest import nearest
from launcher.report.text_page import Page, page_of
from launcher.syntax import escaped

# Results of a search that are shown.
_HITS = 8
_EXAMPLES = """\
launch explain parallel.tp
  launch explain --max_epochs backend={cuda}
  launch explain resume
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
    made.add_argument("--all", action="store_true", help="every version of every backend, and every rule")
    made.add_argument(
        "--trace",
        action="store_true",
        help="trace an override, field, native argument or rule through the program: where the field and the rows "
        "of the mapping tables are declared, the arguments, the rules that read them; with further overrides also what "
        "that job writes, and its findings",
    )
    made.add_argument(
        "overrides", nargs="*", default=[], metavar="OVERRIDE", help="backend=B: this one first; with --trace: the job"
    )
    made.add_argument("--config-dir", action="append", default=[], metavar="DIR", help="folder with your own recipes")
    words, typed = _without_dashes(words)
    options = parse(made, words)

    if options.backend not in (None, *backend_names()):
        named = options.backend.partition("@")[0]
        works = [named] if named in backend_names() else nearest(named, backend_names()) or backend_names()
        raise WrongUse(f"no backend {options.backend!r}", *(f"--backend {name}" for name in works))
    backends = [get_backend(name) for name in backend_names() if options.backend in (None, name)]
    load_all(backends)
    if options.trace:
        return _traced(typed or options.name, backends, options)
    first = _first_backend(options.overrides)
    if first is None and options.overrides:
        raise _not_alone(options)
    backends.sort(key=lambda backend: backend.name != first)
    page = page_of(sys.stdout)
    found = list(explained(typed or options.name, backends))
    alias = alias_of(options.name)
    of_arguments = all("argument" in tree or "launcher argument" in tree for tree in found)
    if alias and not (options.json and found) and of_arguments and _differs(found, alias):
        # A name of another tool, which a part of a backend may have too, for something else.
        found = [*explained(alias[0], backends), *found]
        if not options.json:
            print("\n".join(page.wrap(f"{options.name} is called {' and '.join(alias)} here", "", "  ")))
    if not found:
        _search(options, backends, page)
        return 0
    if options.json:
        print_json({**found[0], **({"also": found[1:]} if len(found) > 1 else {})})
        return 0
    for number, tree in enumerate(found):
        if number:
            print()
        for line in screen(tree, page, every=options.all):
            print(line)
    return 0


def _not_alone(options: argparse.Namespace) -> WrongUse:
    """Return the refusal of words after the name."""
    wrong = next((word for word in options.overrides if "=" not in word), None)
    if wrong is not None:
        return WrongUse(f"{wrong} is no override (key=value)", shlex.join(("launch", "explain", options.name)))
    works = shlex.join(("launch", "explain", "--trace", options.name, *options.overrides))
    return WrongUse("overrides other than backend=B need --trace", works)


def _first_backend(overrides: Sequence[str]) -> str | None:
    """Return the backend that `backend=B` names; None: there are none, or other overrides.

    Raises:
        WrongUse: there is no such backend.
    """
    names = [word.removeprefix("backend=") for word in overrides if word.startswith("backend=")]
    if not names or len(names) != len(overrides):
        return None
    if names[-1] not in backend_names():
        raise WrongUse(f"no backend {names[-1]!r}", *(f"backend={name}" for name in backend_names()))
    return names[-1]


def _differs(found: Sequence[Mapping[str, Any]], alias: Sequence[str]) -> bool:
    """Return whether the first field that native arguments of the name express is none that the alias means."""
    each = (one for tree in found for one in tree.get("backends", ()) if isinstance(one, Mapping))
    first = next((one["fields"] for one in each if one.get("fields")), ())
    return set(alias).isdisjoint(first[:1])


def _search(options: argparse.Namespace, backends: Sequence[Backend], page: Page) -> None:
    """Print what a search finds.

    Raises:
        WrongUse: nothing is found.
    """
    hits = search_names(options.name, backends, limit=_HITS)
    verbs = [(f"launch {name}", verb.doc) for name, verb in VERBS.items() if name == options.name.lower()]
    if not hits and not verbs:
        raise _unknown(options.name, backends)
    if options.json:
        rows = [{"name": hit.name, "kind": hit.kind, "meaning": hit.text, "why": hit.why} for hit in hits]
        print_json({"query": options.name, "found": rows, "verbs": [name for name, _ in verbs]})
        return
    print("\n".join(page.wrap(f"nothing has exactly the name {escaped(options.name)}; related:", "", "  ")))
    for line in page.pairs([*verbs, *((hit.name, hit.text) for hit in hits)]):
        print(line)


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
