"""`launch parity`: one job trained on several backends, with loss and gradient norm of each iteration compared."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from backends import CORE_BACKEND
from launcher.cli.options import parse, parser, print_json
from launcher.cli.refusal import NotDone, WrongUse
from launcher.mapping.backend import UnknownVersion, backend_names, get_backend
from launcher.report.text_page import page_of
from launcher.syntax import is_variable
from launcher.terminal import can_redraw

if TYPE_CHECKING:
    from launcher.parity.request import Request

_EXAMPLE = f"launch parity +recipe=tiny_qwen3_moe --backends {CORE_BACKEND[0]},{{cuda}}"
_ITERATIONS = 10


def main(words: list[str]) -> int:
    """Compare; exit 0 if all agree, 1 if they differ or one fails, 2 for a wrong command line."""
    made = parser(
        "parity",
        "Train a small model of the job on several backends, from the same weights on the same samples, on this "
        "machine, and compare loss and gradient norm of each iteration.",
        _EXAMPLE,
    )
    made.add_argument(
        "--backends", metavar="A,B[,C]", required=True, help="names, each with @VERSION if not the newest"
    )
    made.add_argument("--reference", choices=("transformers",), help="compare with it; default: the first backend")
    made.add_argument("--iterations", type=int, default=_ITERATIONS, metavar="N", help=f"default: {_ITERATIONS}")
    made.add_argument(
        "--entry",
        choices=("native", "core"),
        help="the backends' own entry points, or Launch's trainer on megatron-core; default: native where installed",
    )
    made.add_argument(
        "--python", action="append", default=[], metavar="BACKEND=PATH", help="interpreter that has this backend"
    )
    made.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="BACKEND:NAME=VALUE",
        help="environment variable of this backend's runs, as a checkout that another backend has in another version",
    )
    made.add_argument(
        "--tolerance",
        type=float,
        metavar="R",
        help="largest relative difference of loss and gradient norm; that of the parameters is as many times larger as "
        "by default (fp32: 10); default: by number format and spread",
    )
    made.add_argument(
        "--locate", action="store_true", help="where they differ, name the first layer that computes something else"
    )
    made.add_argument("-o", "--out", metavar="DIR", help="new folder for everything that is written")
    options = parse(made, words)
    asked = _request(options)

    from launcher.outputs.unnamed import written_below
    from launcher.parity.as_tree import as_tree
    from launcher.parity.parity import measure
    from launcher.parity.plot import draw
    from launcher.parity.sides import CannotCompare

    quiet = options.json
    progress = _Progress(quiet)
    try:
        result = measure(asked, show=progress.line, advanced=progress.advance)
    except CannotCompare as error:
        raise NotDone(
            error.message, *error.works, findings=error.findings, job=error.job, rule="PARITY-REFUSED"
        ) from None
    tree = as_tree(result)
    with written_below(result.folder):
        (result.folder / "parity.json").write_text(_text(tree), encoding="utf-8")
        draw(result.folder, result.trained[0].label, result.compared)
    if options.json:
        print_json(tree)
    else:
        from launcher.cli.parity_screen import screen

        progress.end()
        print("\n".join(screen(result, page_of(sys.stdout))))
    return 0 if result.agrees else 1


def _text(tree: object) -> str:
    from launcher.cli.streams import json_text

    return json_text(tree) + "\n"


def _request(options: argparse.Namespace) -> Request:
    from launcher.parity.request import Request

    names = [name.strip() for name in options.backends.split(",")]
    for name in names:
        if name.partition("@")[0] not in backend_names():
            raise WrongUse(f"--backends {options.backends}: no backend {name!r}", *backend_names())
        _check_version(names, name)
    if len(set(names)) < len(names):
        raise WrongUse(f"--backends {options.backends}: each backend once")
    if len(names) < 2 and options.reference is None:
        raise WrongUse(
            f"--backends {options.backends}: two are needed, or --reference transformers",
            f"--backends {options.backends},{next(each for each in backend_names() if each not in names)}",
        )
    if options.out is not None and Path(options.out).expanduser().is_file():
        raise WrongUse(f"-o {options.out}: is a file; expected a new folder", f"-o {options.out}-parity")
    if options.out == "":
        raise WrongUse("-o: expected a new folder", "-o parity")
    if options.iterations < 1:
        raise WrongUse(f"--iterations {options.iterations}: must be at least 1", f"--iterations {_ITERATIONS}")
    if options.tolerance is not None and not 0 <= options.tolerance < 1:
        raise WrongUse(f"--tolerance {options.tolerance}: a relative difference from 0 to 1", "--tolerance 1e-5")
    return Request(
        overrides=options.overrides,
        backends=names,
        iterations=options.iterations,
        reference=options.reference,
        entry=options.entry,
        pythons=dict(_pythons(options.python, names)),
        environs=_environs(options.env, names),
        tolerance=options.tolerance,
        folder=None if options.out is None else Path(options.out).expanduser(),
        config_dirs=options.config_dir,
        locate=options.locate,
    )


def _check_version(names: list[str], name: str) -> None:
    backend, _, version = name.partition("@")
    known = get_backend(backend)
    if not version and "@" not in name:
        return
    try:
        known.version(version)
    except UnknownVersion as error:
        works = (",".join(f"{backend}@{each}" if one == name else one for one in names) for each in known.versions)
        raise WrongUse(f"--backends {','.join(names)}: {error}", *(f"--backends {each}" for each in works)) from None


def _pythons(pairs: list[str], names: list[str]) -> list[tuple[str, str]]:
    from launcher.installed import installed

    known = {name.partition("@")[0] for name in names}
    found = []
    for pair in pairs:
        name, sign, path = pair.partition("=")
        if not sign or name not in known:
            raise WrongUse(f"--python {pair}: BACKEND=PATH, with one of {', '.join(sorted(known))}")
        file = Path(path).expanduser()
        if not file.is_file():
            raise WrongUse(f"--python {pair}: there is no such file")
        problem = installed((), str(file.absolute())).problem
        if problem:
            raise WrongUse(f"--python {pair}: {problem}", f"--python {name}=DIR/bin/python")
        found.append((name, str(file.absolute())))
    return found


def _environs(words: list[str], names: list[str]) -> dict[str, dict[str, str]]:
    known = {name.partition("@")[0] for name in names}
    found: dict[str, dict[str, str]] = {}
    for word in words:
        name, colon, pair = word.partition(":")
        variable, sign, value = pair.partition("=")
        if not (colon and sign and variable) or name not in known:
            raise WrongUse(f"--env {word}: BACKEND:NAME=VALUE, with one of {', '.join(sorted(known))}")
        if not is_variable(variable):
            good = re.sub(r"\W", "_", variable, flags=re.ASCII)
            works = f"--env {name}:{good if is_variable(good) else 'NAME'}={value}"
            raise WrongUse(f"--env {word}: {variable!r} is no environment variable that can be set", works)
        found.setdefault(name, {})[variable] = value
    return found


class _Progress:
    """Lines for a log; on a terminal the iterations of the current training are redrawn in place."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self.drawn = not quiet and can_redraw(sys.stderr)
        self.open = False

    def line(self, text: str) -> None:
        self.end()
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    def advance(self, label: str, count: int, total: int) -> None:
        if self.drawn:
            print(f"\r{label}: iteration {count}/{total} ", end="", file=sys.stderr, flush=True)
            self.open = True

    def end(self) -> None:
        if self.open:
            print(file=sys.stderr, flush=True)
        self.open = False
