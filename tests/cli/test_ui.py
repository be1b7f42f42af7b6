"""`launch ui` where it cannot start."""

import socket

import pytest

from launcher.cli import ui
from launcher.cli.refusal import NotDone
from tests.conftest import Launch


def test_a_taken_port_is_refused_with_a_free_one(launch: Launch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = launch("ui", "--port", str(port), "--json")
    assert done.code == 1
    (finding,) = done.json["findings"]
    assert f"127.0.0.1:{port}" in finding["message"]
    assert "another program" in finding["message"]
    free = int(finding["fix"][0].rpartition(" ")[2])
    with socket.socket() as offered:
        offered.bind(("127.0.0.1", free))


@pytest.mark.parametrize(
    "words, reason",
    [
        (("--port", "70000"), "0 to 65535"),
        (("--token", "short"), "at least 16"),
        (("--token", "é" * 20), "at least 16"),
        (("parallel.tp=2",), "unrecognized"),
    ],
)
def test_a_wrong_command_line(launch: Launch, words: tuple[str, ...], reason: str) -> None:
    done = launch("ui", *words)
    assert done.code == 2
    assert reason in done.err


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid"])
def test_an_address_that_is_not_ours(launch: Launch, host: str) -> None:
    done = launch("ui", "--host", host, "--port", "0", "--json")
    assert done.code == 1
    (finding,) = done.json["findings"]
    assert host in finding["message"]
    assert finding["fix"] == ["launch ui --host 127.0.0.1"]


def test_a_taken_port_of_another_address_is_refused_with_a_free_one_there(launch: Launch) -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        done = launch("ui", "--host", "0.0.0.0", "--port", str(taken.getsockname()[1]), "--json")
    assert done.json["findings"][0]["fix"][0].startswith("launch ui --host 0.0.0.0 --port ")


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ui, "find_spec", lambda name: None)
    with pytest.raises(NotDone) as refused:
        ui.main([])
    assert refused.value.works == ("pip install 'launch-llm[ui]'",)
