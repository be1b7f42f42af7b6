"""`launch estimate` without a known peak names hardware that the backend runs on, and with which there is a time."""

import re

import pytest

from launcher.cli import main
from launcher.compose import compose
from launcher.mapping.backend import backend_names, get_backend

NAMED = re.compile(r"works: (hardware=\w+)")


@pytest.mark.parametrize("backend", backend_names())
def test_what_is_named_gives_a_time(capsys: pytest.CaptureFixture[str], backend: str) -> None:
    job = ["+recipe=qwen3_8b", f"backend={backend}", "model.pretrained=false"]
    assert main(["estimate", *job]) == 0
    first = capsys.readouterr().out
    assert "no time" in first
    (named,) = NAMED.findall(first)
    assert compose([*job, named]).hardware.device in get_backend(backend).devices
    main(["estimate", *job, named])
    assert "no time" not in capsys.readouterr().out
