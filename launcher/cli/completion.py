"""`launch completion`: the script by which bash, zsh or fish complete command lines of `launch`."""

import os
import sys
from importlib.util import find_spec

from launcher.cli.options import parse, parser, print_json
from launcher.cli.refusal import NotDone, WrongUse
from launcher.completion import index
from launcher.completion.shells import INSTALL
from launcher.nearest import nearest

_EXAMPLES = """\
eval "$(launch completion bash)"                                         now; in ~/.bashrc: always
  launch completion zsh > ~/.zfunc/_launch
  launch completion fish > ~/.config/fish/completions/launch.fish"""


def main(words: list[str]) -> int:
    """Print the script; exit 2 for a shell without one."""
    made = parser(
        "completion",
        "Print the script with which a shell completes verbs, options, recipes, fields, values, files and runs.",
        _EXAMPLES,
        overrides=False,
    )
    made.add_argument("shell", nargs="?", metavar="SHELL", help=" | ".join(INSTALL))
    options = parse(made, words)
    shell = options.shell
    if shell not in INSTALL:
        raise _unknown(shell)
    if find_spec("argcomplete") is None:
        raise NotDone("the package argcomplete is missing", "pip install argcomplete")
    script = _script(shell)
    if options.json:
        print_json({"shell": shell, "script": script, "install": list(INSTALL[shell])})
    else:
        print(script, end="")
        if sys.stdout.isatty():
            print("\n".join(("", "to install it:", *INSTALL[shell])), file=sys.stderr)
    _make_index()
    return 0


def _unknown(shell: str | None) -> WrongUse:
    works = [f"launch completion {name}" for name in INSTALL]
    if shell is None:
        own = os.path.basename(os.environ.get("SHELL", ""))
        mine = [work for work in works if work.split()[-1] == own]
        return WrongUse("for which shell?", *(mine or works))
    near = [f"launch completion {name}" for name in nearest(shell, INSTALL)]
    return WrongUse(f"no completion for the shell {shell!r}", *(near or works))


def _script(shell: str) -> str:
    """Return the script; its first line stays first, since zsh reads `#compdef` there."""
    from argcomplete.shell_integration import shellcode

    first, _, rest = shellcode(["launch"], shell=shell).strip().partition("\n")
    notes = [f"# {line}" for line in ("Completion of `launch`. To install it:", *INSTALL[shell])]
    head = [first, *notes] if first.startswith("#compdef") else [*notes, first]
    return "\n".join(head) + f"\n{rest}\n"


def _make_index() -> None:
    """Make the index if it is not that of this program, so that the first completion is as fast as all others."""
    found = index.read()
    if found is None or not index.is_current(found):
        from launcher.cli.completion_index import make_all

        sys.stdout.flush()
        make_all()
