"""A planner of its own, as a user starts it, and requests to it as a browser sends them."""

import http.client
import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conftest import ROOT
from tests.waiting import STUCK_SECONDS


@dataclass(slots=True)
class Planner:
    """A running server.

    Attributes:
        url: with its token.
        process: the process.
        folder: its working folder.
    """

    url: str
    process: "subprocess.Popen[str]"
    folder: Path
    cookie: str = ""

    @property
    def origin(self) -> str:
        return self.url.split("/?")[0]

    def sign_in(self) -> None:
        link = http.client.HTTPConnection(self.origin.removeprefix("http://"), timeout=60)
        link.request("GET", self.url.removeprefix(self.origin))
        answer = link.getresponse()
        assert answer.status == 303
        self.cookie = str(answer.getheader("Set-Cookie")).split(";")[0]
        link.close()

    def send(self, path: str, body: bytes | None = None, **headers: str) -> tuple[int, str]:
        """Return status and body of a request with the session's cookie."""
        own = {"Cookie": self.cookie, "Content-Type": "application/json", "Origin": self.origin}
        request = urllib.request.Request(self.origin + path, data=body, headers={**own, **headers})
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def callback(self, output: str, changed: Sequence[str] = (), **values: Any) -> tuple[int, str]:
        """Return the answer of the callback whose outputs include `output`; inputs and states by id.

        Args:
            changed: inputs, as `id.property`, that changed together; the first one by default.
        """
        each = next(one for one in json.loads(self.send("/_dash-dependencies")[1]) if output in one["output"])
        given = {name.replace("__", "-"): value for name, value in values.items()}

        def filled(part: dict[str, str]) -> dict[str, Any]:
            return {**part, "value": given.get(part["id"])}

        names = each["output"].strip(".").split("...")
        outputs: Any = [dict(zip(("id", "property"), re.split(r"\.(?=[^.]+$)", name), strict=True)) for name in names]
        body = {
            "output": each["output"],
            "outputs": outputs if each["output"].startswith("..") else outputs[0],
            "inputs": [filled(part) for part in each["inputs"]],
            "state": [filled(part) for part in each["state"]],
            "changedPropIds": [*changed] or [f"{part['id']}.{part['property']}" for part in each["inputs"]][:1],
        }
        return self.send("/_dash-update-component", json.dumps(body).encode())

    def live(self, *words: str) -> str:
        """Return what the page shows for overrides, as JSON."""
        status, text = self.callback("verdict.children", asked=list(words))
        assert status == 200, text
        return plain(text)

    def imported(self, text: str, kind: str = ".sh", target: str | None = None) -> str:
        """Return the report on a script, as JSON."""
        given: dict[str, Any] = {"read": 1, "script": text, "script__kind": kind, "port__to": target}
        status, found = self.callback("import-report.children", **given)
        assert status == 200, found
        return plain(found)


def plain(text: str) -> str:
    """Return JSON without escapes, in which words are found as they are shown."""
    return json.dumps(json.loads(text), ensure_ascii=False)


@contextmanager
def planner(folder: Path, **env: str) -> Iterator[Planner]:
    """Start a planner in a folder and end it."""
    words = [sys.executable, "-m", "launcher", "ui", "--port", "0", "--no-browser", "--json"]
    own = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder), **env}
    with subprocess.Popen(
        words, cwd=folder, env=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            text = ""
            while not text.rstrip().endswith("}"):
                line = process.stdout.readline()
                assert line, process.stderr.read() if process.stderr else ""
                text += line
            found = Planner(url=json.loads(text)["url"], process=process, folder=folder)
            found.sign_in()
            yield found
        finally:
            process.terminate()
            process.wait(timeout=STUCK_SECONDS)
