"""`launch args`: the arguments that a backend version really accepts, from its catalogue."""

import sys

from launcher.cli.options import guarded, parse, parser, print_json
from launcher.translate.backend import UnknownBackend, UnknownVersion, backend_names, get_backend
from launcher.translate.catalogue import Argument


def main(words: list[str]) -> int:
    """List a catalogue; exit 2 for an unknown backend or version."""
    made = parser("args", "List the arguments a backend accepts.", "launch args mindspeed --json", overrides=False)
    made.add_argument("backend", metavar="BACKEND")
    made.add_argument("names", nargs="*", metavar="TEXT", help="only arguments whose name contains one of these")
    made.add_argument("--backend-version", metavar="V", help="none: the newest known")
    options = parse(made, words)

    def body() -> int:
        try:
            backend = get_backend(options.backend)
            version = backend.version(options.backend_version)
        except UnknownBackend:
            print(f"launch args: no backend {options.backend!r}; works: {' · '.join(backend_names())}", file=sys.stderr)
            return 2
        except UnknownVersion as error:
            print(f"launch args: {error}", file=sys.stderr)
            return 2
        catalogue = backend.catalogue(version)
        wanted = [text.replace("_", "-") for text in options.names]
        chosen = [a for a in catalogue.arguments if not wanted or any(w in a.name.replace("_", "-") for w in wanted)]
        if not chosen:
            wanted_text = " or ".join(options.names)
            print(f"launch args: no argument of {backend.name} {version} contains {wanted_text}", file=sys.stderr)
            return 1
        if options.json:
            print_json({"backend": backend.name, "version": version, "arguments": [_tree(a) for a in chosen]})
        else:
            for argument in chosen:
                print(_line(argument))
        return 0

    return guarded(body, as_json=options.json)


def _tree(argument: Argument) -> dict[str, object]:
    return {
        name: getattr(argument, name) for name in argument.__slots__ if getattr(argument, name) not in (None, (), "")
    }


def _line(argument: Argument) -> str:
    kind = argument.action if argument.is_flag else argument.type + (" …" if argument.is_list else "")
    choices = f" one of {', '.join(str(choice) for choice in argument.choices)}" if argument.choices else ""
    default = f" = {argument.default}" if argument.default is not None else ""
    return f"{argument.name}  {kind}{choices}{default}  [{argument.source}]"
