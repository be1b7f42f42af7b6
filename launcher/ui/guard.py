"""Who may talk to the server: its own page, opened with the token; no other site, no other name of this machine."""

import hmac
import ipaddress
import secrets
from collections.abc import Sequence
from urllib.parse import urlsplit

from flask import Flask, Response, redirect, request

# Longest body of a request: an uploaded script of 2 MiB as JSON, twice over.
LONGEST_BODY = 6 * 2**20
WILDCARDS = ("0.0.0.0", "::", "")
LOCAL = ("localhost", "127.0.0.1", "::1")
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "X-Robots-Tag": "noindex",
}


def new_token() -> str:
    """Return a token that cannot be guessed."""
    return secrets.token_urlsafe(24)


class Guard:
    """Checks every request before Dash sees it.

    Args:
        token: what the URL must hold once; it becomes a cookie.
        host, port: what the server listens on.
    """

    def __init__(self, token: str, host: str, port: int) -> None:
        self.token, self.host, self.port = token, host, port
        # Cookies are shared by all ports of a name: two planners on one machine must not sign each other out.
        self.cookie = f"launch_ui_{port}"

    def protect(self, server: Flask, hashes: Sequence[str]) -> None:
        """Check all requests of a server; `hashes` are those of the inline scripts of its page."""
        policy = _policy(hashes)
        server.config["MAX_CONTENT_LENGTH"] = LONGEST_BODY
        server.before_request(self._refusal)

        @server.after_request
        def headers(response: Response) -> Response:
            response.headers.update(_HEADERS)
            response.headers["Content-Security-Policy"] = policy
            if not request.path.startswith(("/assets/", "/_dash-component-suites/")):
                response.headers["Cache-Control"] = "no-store"
            return response

    def _refusal(self) -> Response | None:
        """Return why the current request is refused; None: it is not."""
        if not self.allows_host(request.host):
            return _text(403, "wrong Host header: open the URL that launch ui printed")
        if request.method not in ("GET", "HEAD", "POST"):
            return _text(405, "only GET and POST")
        origin = request.headers.get("Origin")
        if origin is not None and not self._is_own(origin):
            return _text(403, "requests of another site are refused")
        # Where a browser sends no Origin it says so here; other programs send neither, and have no cookie of a user.
        if request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin") and not self._opens_page():
            return _text(403, "requests of another site are refused")
        if request.method == "POST" and not request.is_json:
            return _text(415, "only JSON")
        given = request.args.get("token")
        if given is not None and request.method == "GET" and request.path == "/":
            return self._exchanged(given)
        if not hmac.compare_digest(request.cookies.get(self.cookie, "").encode(), self.token.encode()):
            return _text(401, "open the URL that launch ui printed: its token is missing or is another server's")
        return None

    def _exchanged(self, given: str) -> Response:
        if not hmac.compare_digest(given.encode(), self.token.encode()):
            return _text(401, "the token is another server's: open the URL that launch ui printed")
        # The token leaves the address bar and the history; a fragment with the state stays.
        response = redirect("/", code=303, Response=Response)
        assert isinstance(response, Response)
        response.set_cookie(self.cookie, self.token, httponly=True, samesite="Strict", path="/")
        return response

    def _opens_page(self) -> bool:
        """Return whether a link of another page (a chat, a document) opens the planner: a cookie is then not sent."""
        return request.method == "GET" and request.path == "/" and request.headers.get("Sec-Fetch-Mode") == "navigate"

    def _is_own(self, origin: str) -> bool:
        return origin == f"http://{request.host}"

    def allows_host(self, given: str) -> bool:
        """Return whether a Host header names this server: a name that others can point at it (DNS rebinding) does not.

        Where it listens on all addresses, any address is one of its own; names are this machine's.
        """
        try:
            parts = urlsplit(f"//{given}")
            name, port = (parts.hostname or "").rstrip("."), parts.port or 80
        except ValueError:
            return False
        if port != self.port or parts.username is not None:
            return False
        if name in LOCAL or name == self.host:
            return True
        return self.host in WILDCARDS and (_is_address(name) or name in _own_names())


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _own_names() -> set[str]:
    import socket

    return {socket.gethostname().lower(), socket.getfqdn().lower()}


def _policy(hashes: Sequence[str]) -> str:
    """Return the content security policy; styles are inline in Dash's components, scripts are not but for hashes."""
    scripts = " ".join(f"'{each.strip(chr(39))}'" for each in hashes)
    return (
        f"default-src 'none'; script-src 'self' {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "font-src 'self' data:; connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
    )


def _text(status: int, message: str) -> Response:
    return Response(f"{message}\n", status=status, mimetype="text/plain")
