"""`launch ui`: the web planner."""

import argparse
import contextlib
import sys
from importlib.util import find_spec

from launcher.cli.notes import print_remark
from launcher.cli.options import parse, parser
from launcher.cli.refusal import NotDone, WrongUse

_EXAMPLE = """\
launch ui
  launch ui --port 8600 --no-browser
  ssh -L 8501:127.0.0.1:8501 HOST launch ui --no-browser     then open the URL here"""
_NEEDED = ("dash", "waitress", "pebble")
_HOST, _PORT = "127.0.0.1", 8501


def main(words: list[str]) -> int:
    """Serve the planner until Ctrl-C; exit 1 if it cannot start, 2 for usage."""
    made = parser(
        "ui",
        "Plan a job in the browser: choose, check, estimate, search, compare, import. Nothing is started.",
        _EXAMPLE,
        overrides=False,
    )
    made.add_argument("--host", default=_HOST, metavar="ADDRESS", help=f"address to listen on (default {_HOST})")
    made.add_argument("--port", type=int, default=_PORT, metavar="N", help=f"port; 0: any free one (default {_PORT})")
    made.add_argument(
        "--token", metavar="TEXT", help="token of the URL instead of a random one: at least 16 characters"
    )
    made.add_argument("--no-browser", action="store_true", help="print the URL only")
    options = parse(made, words)
    _refuse_wrong(options)

    from launcher.ui.guard import new_token
    from launcher.ui.serve import Address, PortTaken, listening, serve

    try:
        opened = listening(options.host, options.port)
    except PortTaken as error:
        raise NotDone(str(error), _works(options.host, error.free)) from None
    address = Address(host=options.host, port=opened.getsockname()[1], token=options.token or new_token())
    with contextlib.suppress(KeyboardInterrupt):
        serve(opened, address, lambda: _ready(address, options))
    return 0


def _works(host: str, free: int | None) -> str:
    """Return the command for an address that can be used: a free port of the host, else of this machine."""
    if host == _HOST:
        return f"launch ui --port {free or 0}"
    return f"launch ui --host {_HOST}" if free is None else f"launch ui --host {host} --port {free}"


def _refuse_wrong(options: argparse.Namespace) -> None:
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise NotDone(f"launch ui needs the Python package {missing[0]}", "pip install 'launch-llm[ui]'")
    if not 0 <= options.port <= 65535:
        raise WrongUse(f"--port {options.port}: 0 to 65535", f"--port {_PORT}")
    token = options.token
    if token is not None and (
        len(token) < 16 or not token.isascii() or not token.replace("-", "").replace("_", "").isalnum()
    ):
        raise WrongUse("--token takes at least 16 letters, digits, - or _", "launch ui, which makes a random one")


def _ready(address: "object", options: argparse.Namespace) -> None:
    from launcher.cli.options import print_json
    from launcher.ui.serve import Address, can_open_browser

    assert isinstance(address, Address)
    if options.json:
        print_json({"url": address.url, "host": address.host, "port": address.port})
        sys.stdout.flush()
        return
    print(f"planner: {address.url}\nstop it with Ctrl-C", flush=True)
    if not address.is_local:
        print_remark(
            "ui",
            f"{address.host} is reached from the network without encryption; "
            f"safer: --host 127.0.0.1 and ssh -L {address.port}:127.0.0.1:{address.port} HOST",
        )
    if options.no_browser:
        return
    if not can_open_browser():
        print("no browser here: open the URL above in yours", flush=True)
        return
    import webbrowser

    webbrowser.open(address.url)
