"""External links of the documentation: where they stand, their form, and what a server says of them."""

import http.server
import threading
from collections.abc import Iterator

import pytest

external_links = pytest.importorskip("tools.docs.external_links")


@pytest.mark.parametrize(
    ("line", "addresses"),
    [
        ("See [x](https://a.org/b), and https://a.org/c.", ["https://a.org/b", "https://a.org/c"]),
        (
            "`https://a.org/x` <https://a.org/y>; (https://a.org/w_(z))",
            [f"https://a.org/{end}" for end in ("x", "y", "w_(z)")],
        ),
        (
            "arXiv:2412.19437, eq. 18; arXiv 2412.06464.",
            [f"https://arxiv.org/abs/2412.{end}" for end in ("19437", "06464")],
        ),
        ("http://127.0.0.1:8501, https://example.com/a, https://HOST/x, s3://bucket", []),
    ],
)
def test_links_of_a_line(line: str, addresses: list[str]) -> None:
    found = list(external_links.links(f"\n{line}\n", "p.md"))
    assert ([link.address for link in found], {link.line for link in found} - {2}) == (addresses, set())


@pytest.mark.parametrize(
    ("address", "wrong"),
    [
        ("https://github.com/NVIDIA/Megatron-LM", ""),
        ("https://github.com/NVIDIA/Megatron-LM/blob/core_v0.16.1/README.md#L3", ""),
        ("https://github.com/safetensors/safetensors/issues/531", ""),
        ("https://arxiv.org/abs/2412.19437v2", ""),
        ("https://docs.python.org/3/library/re.html#a", ""),
        ("http://docs.python.org/3", "http is not https"),
        ("https://docs/x", "no host"),
        ("https://me:secret@a.org/x", "user or password"),
        ("https://a.org/50%", "not escaped"),
        ("https://arxiv.org/abs/2413.19437", "no such number"),
        ("https://github.com/NVIDIA", "no repository"),
        ("https://github.com/a/b/issue/5", "no repository"),
    ],
)
def test_the_form_of_a_link(address: str, wrong: str) -> None:
    found = external_links.fault(address)
    assert (wrong in found) if wrong else (found == "")


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self.send_response({"/there": 200, "/busy": 429}.get(self.path, 404))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    with http.server.HTTPServer(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_server_is_believed_only_where_it_says_that_there_is_no_such_page(address: str) -> None:
    asked = [external_links.answer(f"{address}/{path}") for path in ("there", "gone", "busy")]
    assert [there for there, _ in asked] == [True, False, None]
    assert external_links.answer("http://127.0.0.1:9/")[0] is None
