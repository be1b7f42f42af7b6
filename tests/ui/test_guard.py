"""Requests that the planner's server answers, and those that it refuses."""

from typing import Any

import pytest

flask = pytest.importorskip("flask")

from launcher.ui.guard import LONGEST_BODY, Guard  # noqa: E402  the extra `ui` may be missing

TOKEN = "t0ken-of-this-test"
HOST = "127.0.0.1:8501"


def client(host: str = "127.0.0.1", port: int = 8501) -> Any:
    server = flask.Flask("test")
    Guard(TOKEN, host, port).protect(server, ["sha256-abc="])
    server.add_url_rule("/", "page", lambda: "page")
    server.add_url_rule("/answer", "answer", lambda: {"ok": True}, methods=["POST"])
    server.add_url_rule("/echo", "echo", lambda: flask.request.get_json(), methods=["POST"])
    return server.test_client()


def signed_in(**where: Any) -> Any:
    made = client(**where)
    host = {"Host": f"{where.get('host', '127.0.0.1')}:8501"}
    assert made.get(f"/?token={TOKEN}", headers=host).status_code == 303
    return made


def test_the_token_becomes_a_cookie_and_leaves_the_address() -> None:
    answer = client().get(f"/?token={TOKEN}", headers={"Host": HOST})
    cookie = answer.headers["Set-Cookie"]
    assert (answer.status_code, answer.headers["Location"]) == (303, "/")
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert cookie.startswith("launch_ui_8501=")


@pytest.mark.parametrize("path", ["/", "/?token=wrong", "/?token=", "/_dash-layout", "/assets/planner.js", "/answer"])
def test_nothing_is_shown_without_the_token(path: str) -> None:
    assert client().get(path, headers={"Host": HOST}).status_code == 401


@pytest.mark.parametrize("text", ["", "é", TOKEN[:-1], TOKEN + "x"])
def test_another_cookie_is_refused(text: str) -> None:
    made = client()
    assert made.get("/", headers={"Host": HOST, "Cookie": f"launch_ui_8501={text}"}).status_code == 401


ORIGINS = {
    "its own page": ({"Origin": f"http://{HOST}"}, 200),
    "a program without Origin": ({}, 200),
    "another site": ({"Origin": "http://evil.example"}, 403),
    "another port": ({"Origin": "http://127.0.0.1:9999"}, 403),
    "a local file": ({"Origin": "null"}, 403),
    "https": ({"Origin": f"https://{HOST}"}, 403),
    "another site, by the browser's word": ({"Sec-Fetch-Site": "cross-site"}, 403),
    "another port, by the browser's word": ({"Sec-Fetch-Site": "same-site"}, 403),
    "its own page, by the browser's word": ({"Sec-Fetch-Site": "same-origin"}, 200),
}


@pytest.mark.parametrize("headers, status", ORIGINS.values(), ids=ORIGINS)
def test_requests_of_other_sites_are_refused(headers: dict[str, str], status: int) -> None:
    assert signed_in().post("/answer", json={}, headers={"Host": HOST, **headers}).status_code == status


HOSTS = {
    "the address": ("127.0.0.1", "127.0.0.1:8501", True),
    "localhost": ("127.0.0.1", "localhost:8501", True),
    "a name that another points here": ("127.0.0.1", "evil.example:8501", False),
    "the address with another port": ("127.0.0.1", "127.0.0.1:80", False),
    "no port": ("127.0.0.1", "127.0.0.1", False),
    "a name with an account": ("127.0.0.1", "127.0.0.1@evil.example:8501", False),
    "a name like the address": ("127.0.0.1", "127.0.0.1.evil.example:8501", False),
    "no number": ("127.0.0.1", "127.0.0.1:abc", False),
    "another address where only one is listened on": ("127.0.0.1", "10.0.0.7:8501", False),
    "an address where all are listened on": ("0.0.0.0", "10.0.0.7:8501", True),
    "a foreign name where all are listened on": ("0.0.0.0", "evil.example:8501", False),
    "the name it was given": ("planner.site", "planner.site:8501", True),
}


@pytest.mark.parametrize("listens, host, allowed", HOSTS.values(), ids=HOSTS)
def test_names_of_the_server(listens: str, host: str, allowed: bool) -> None:
    assert client(listens).get(f"/?token={TOKEN}", headers={"Host": host}).status_code == (303 if allowed else 403)


def test_a_large_body_is_refused() -> None:
    body = b'{"a": "' + b"x" * LONGEST_BODY + b'"}'
    made = signed_in()
    answer = made.post("/echo", data=body, content_type="application/json", headers={"Host": HOST})
    assert answer.status_code == 413


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "PATCH"])
def test_other_methods_are_refused(method: str) -> None:
    assert signed_in().open("/", method=method, headers={"Host": HOST}).status_code == 405


def test_a_form_is_refused() -> None:
    """A form of another site needs no permission of the browser, JSON does."""
    assert signed_in().post("/answer", data={"a": "b"}, headers={"Host": HOST}).status_code == 415


def test_a_page_runs_only_its_own_scripts() -> None:
    headers = signed_in().get("/", headers={"Host": HOST}).headers
    policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == "'self' 'sha256-abc='"
    assert policy["frame-ancestors"] == "'none'"
    assert (headers["X-Frame-Options"], headers["X-Content-Type-Options"]) == ("DENY", "nosniff")
    assert headers["Cache-Control"] == "no-store"
