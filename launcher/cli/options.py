"""What all verbs share: their options, composing the job, and how mistakes and findings are shown."""

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from launcher.compose import ComposeError, compose
from launcher.job import Job
from launcher.pipeline import Refused
from launcher.rehearse.refusal import RehearsalRefused
from launcher.rules.finding import Finding


class _Parser(argparse.ArgumentParser):
    """argparse with one-screen errors."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message}\nworks: {self.prog} --help", file=sys.stderr)
        raise SystemExit(2)


def parser(verb: str, doc: str, example: str, *, overrides: bool = True) -> argparse.ArgumentParser:
    """Return the parser of a verb with what every verb has."""
    made = _Parser(
        prog=f"launch {verb}",
        description=doc,
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    if overrides:
        made.add_argument("overrides", nargs="*", metavar="OVERRIDE", help="Hydra overrides, such as +recipe=qwen3_moe")
        made.add_argument(
            "--config-dir", action="append", default=[], metavar="DIR", help="folder with your own recipes and groups"
        )
    made.add_argument("--json", action="store_true", help="machine-readable output")
    return made


def parse(made: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    """Parse words; options may stand before, between or after overrides."""
    return made.parse_intermixed_args(words)


def guarded(body: Callable[[], int], *, as_json: bool = False) -> int:
    """Run a verb's body; mistakes of the user become one screen and an exit code, never a traceback."""
    try:
        return body()
    except ComposeError as error:
        show_mistakes(error, as_json=as_json)
        return 2
    except Refused as error:
        show_refusal([error.finding], as_json=as_json)
        return 2
    except RehearsalRefused as error:
        show_refusal(error.findings, as_json=as_json)
        return 1


def show_refusal(findings: list[Finding], *, as_json: bool) -> None:
    """Show why a job cannot be judged or rehearsed at all."""
    from launcher.report.findings import print_findings

    if as_json:
        print_json({"ok": False, "findings": [finding.as_tree() for finding in findings]})
    else:
        print_findings(findings)


def composed(options: argparse.Namespace) -> Job:
    """Compose the job of a verb."""
    return compose(options.overrides, options.config_dir)


def show_mistakes(error: ComposeError, *, as_json: bool) -> None:
    """Show every mistake of a command line: what, where, and what would work."""
    if as_json:
        mistakes = [{"what": m.what, "where": m.where, "works": list(m.works)} for m in error.mistakes]
        print_json({"ok": False, "mistakes": mistakes})
        return
    for mistake in error.mistakes:
        where = f"  ({mistake.where})" if mistake.where and mistake.where not in mistake.what else ""
        print(f"error  {mistake.what}{where}", file=sys.stderr)
        if mistake.works:
            print(f"  works: {' · '.join(mistake.works)}", file=sys.stderr)


def print_json(tree: Any) -> None:
    """Print plain data as JSON."""
    print(json.dumps(tree, indent=2, ensure_ascii=False))
