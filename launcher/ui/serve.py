"""The server of the planner: its address, its processes, and its end."""

import errno
import logging
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable

from launcher.records import dataclass
from launcher.ui.guard import LOCAL, LONGEST_BODY, WILDCARDS, Guard

# Threads wait for answers of the worker processes; connections beyond the limit wait in the kernel.
_THREADS, _CONNECTIONS, _IDLE_S = 24, 400, 60
_TRIED = 50


class PortTaken(Exception):
    """The port cannot be used; `free` is one that can, None: none was found."""

    def __init__(self, host: str, port: int, why: str, free: int | None) -> None:
        super().__init__(f"{host}:{port} cannot be used: {why}")
        self.free = free


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where the server listens, and the token that opens it."""

    host: str
    port: int
    token: str

    @property
    def url(self) -> str:
        """URL for a browser on this machine, token included."""
        wildcard = self.host in WILDCARDS
        name = "127.0.0.1" if wildcard else f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{name}:{self.port}/?token={self.token}"

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches it."""
        return self.host in LOCAL or self.host.startswith("127.")


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0: any free one.

    Raises:
        PortTaken: another program has the port, or it may not be used.
    """
    try:
        return _bound(host, port)
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        why = "another program listens there" if taken else (error.strerror or str(error)).lower()
        free = _free(host, port) if error.errno in (errno.EADDRINUSE, errno.EACCES) else None
        raise PortTaken(host, port, why, free) from None


def _bound(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM)[0]
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(256)
    except BaseException:
        made.close()
        raise
    return made


def _free(host: str, port: int) -> int | None:
    for candidate in range(max(port, 1023) + 1, min(max(port, 1023) + _TRIED, 65535)):
        try:
            _bound(host, candidate).close()
        except OSError:
            continue  # taken, too
        return candidate
    return None


def serve(opened: socket.socket, address: Address, ready: Callable[[], None]) -> None:
    """Serve the planner until it is interrupted.

    Args:
        ready: called when requests are answered.
    """
    from waitress.server import create_server

    from launcher.ui.app import build
    from launcher.ui.pool import Pool
    from launcher.ui.searches import Searches

    logging.getLogger("waitress").setLevel(logging.ERROR)
    uploads = tempfile.mkdtemp(prefix="launch-ui-")
    pool = Pool([uploads])
    searches = Searches(pool.context)
    try:
        app = build(pool, searches, uploads)
        Guard(address.token, address.host, address.port).protect(app.server, app.csp_hashes())
        server = create_server(
            app.server,
            sockets=[opened],
            threads=_THREADS,
            connection_limit=_CONNECTIONS,
            channel_timeout=_IDLE_S,
            max_request_body_size=LONGEST_BODY,
            ident=None,
            clear_untrusted_proxy_headers=True,
        )
        pool.start()
        ready()
        server.run()
    finally:
        searches.close()
        pool.close()
        shutil.rmtree(uploads, ignore_errors=True)


def can_open_browser() -> bool:
    """Return whether this session has a screen and a browser for it."""
    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    import webbrowser

    try:
        return webbrowser.get() is not None
    except webbrowser.Error:
        return False
