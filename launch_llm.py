"""The command `launch`. Its own module, because another package called `launcher` would hide the program entirely.

The name is that of the distribution, so that nothing else on the path has it. Nothing is imported here that the
interpreter has not imported already: Ctrl-C during an import would be shown with a traceback.
"""

import os
import sys

# A file of each of our packages that no other package of that name has. Where this module lies says nothing of them:
# an editable install copies it, and leaves them in the checkout.
_PACKAGES = {"launcher": "cli/dispatch.py", "backends": "megatron_lm/__init__.py"}


def main() -> int:
    """Run `launch` with the words of this process; 1 where another package hides a part of the program."""
    try:
        _answer_interrupts()
        hidden = next(filter(None, map(_hidden, _PACKAGES)), "")
        if hidden:
            print(f"launch: {hidden}", file=sys.stderr)
            return 1
        from launcher.cli import main as run

        return run()
    except KeyboardInterrupt:
        os._exit(130)


def _answer_interrupts() -> None:
    """End at Ctrl-C until `launcher.cli` answers it: the built-in half of `signal`, whose other half takes time."""
    import _signal  # type: ignore[import-not-found]

    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, lambda *_: os._exit(130))


def _hidden(name: str) -> str:
    """Return which file hides our package of this name, and what to do; "" where ours would be imported."""
    found = _found(name)
    if found.endswith("__init__.py") and os.path.exists(os.path.join(os.path.dirname(found), _PACKAGES[name])):
        return ""
    if not found:
        return f"the package {name} is missing; works: pip install --force-reinstall launch-llm"
    folder = os.path.dirname(os.path.dirname(found) if found.endswith(".py") else found)
    works = f"take {folder} off PYTHONPATH, or uninstall the package that has put it there"
    if os.path.realpath(folder) == os.path.realpath(os.curdir):
        works = "cd to another folder, or `launch` for `python -m launcher`, with no `.` in PYTHONPATH"
    return f"{found} hides the package {name} of Launch; works: {works}"


def _found(name: str) -> str:
    """Return the file that `import NAME` would read, without importing it; "" where there is none."""
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec = find(name, None) if find is not None else None
        if spec is not None:
            return str(spec.origin or next(iter(spec.submodule_search_locations or ()), ""))
    return ""
