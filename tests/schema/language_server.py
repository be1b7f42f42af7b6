"""The real yaml-language-server, in a folder beside the backends' environments.

python -m tests.schema.language_server    install it
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

# 2.0 needs node 22; Debian and CI have 20.
PACKAGE = "yaml-language-server@1.25.0"
_ROOT = Path(os.environ.get("LAUNCH_TEST_ENVIRONMENTS") or Path.home() / ".cache" / "launch-tests")
FOLDER = _ROOT / PACKAGE.replace("@", "-")
_PROGRAM = FOLDER / "node_modules" / "yaml-language-server" / "bin" / "yaml-language-server"


def missing() -> str:
    """Return why the server cannot run; "": it can."""
    if shutil.which("node") is None:
        return "node is not installed"
    if not _PROGRAM.is_file():
        return f"{PACKAGE} is not in {FOLDER}: python -m tests.schema.language_server installs it, with npm"
    return ""


def install() -> int:
    """Install the server with npm; where it is there already, do nothing."""
    if not missing():
        return 0
    if shutil.which("npm") is None or shutil.which("node") is None:
        print("node or npm is missing: the tests of editors are skipped", file=sys.stderr)
        return 0
    _ROOT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_ROOT) as folder:
        command = ["npm", "install", "--prefix", folder, "--no-audit", "--no-fund", "--silent", PACKAGE]
        if subprocess.run(command, check=False).returncode:
            print(f"npm cannot install {PACKAGE}: the tests of editors are skipped", file=sys.stderr)
            return 0
        shutil.rmtree(FOLDER, ignore_errors=True)
        shutil.copytree(folder, FOLDER, symlinks=True)
    return 0


class LanguageServer:
    """A client of one server over its standard streams (Language Server Protocol 3.17)."""

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(
            ["node", str(_PROGRAM), "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.number = 0
        self.found: dict[str, list[Any]] = {}
        document = {"completion": {"completionItem": {"documentationFormat": ["markdown", "plaintext"]}}, "hover": {}}
        self.ask("initialize", processId=os.getpid(), rootUri=None, capabilities={"textDocument": document})
        self.tell("initialized")
        yaml = {"validate": True, "completion": True, "hover": True, "schemaStore": {"enable": False}}
        self.tell("workspace/didChangeConfiguration", settings={"yaml": yaml})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()

    def opened(self, path: Path) -> list[dict[str, Any]]:
        """Open a file and return its diagnostics."""
        uri = path.as_uri()
        text = path.read_text(encoding="utf-8")
        self.tell("textDocument/didOpen", textDocument={"uri": uri, "languageId": "yaml", "version": 1, "text": text})
        while uri not in self.found:
            self._take(self._read())
        return self.found[uri]

    def completed(self, path: Path, line: int, character: int) -> list[dict[str, Any]]:
        """Return what completes an open file at a place."""
        answer = self.ask("textDocument/completion", **_at(path, line, character))
        return list(answer["items"] if isinstance(answer, dict) else answer)

    def hovered(self, path: Path, line: int, character: int) -> str:
        """Return what an open file shows at a place."""
        answer = self.ask("textDocument/hover", **_at(path, line, character))
        return json.dumps(answer)

    def ask(self, method: str, **params: Any) -> Any:
        """Send a request and return its result; what the server asks meanwhile is answered."""
        self.number += 1
        number = self.number
        self._write({"id": number, "method": method, "params": params})
        for message in self._messages():
            if message.get("id") == number and "method" not in message:
                assert "error" not in message, message
                return message["result"]
        raise AssertionError("the server ended")

    def tell(self, method: str, **params: Any) -> None:
        """Send a notification."""
        self._write({"method": method, "params": params})

    def _messages(self) -> Iterator[dict[str, Any]]:
        while True:
            message = self._read()
            self._take(message)
            yield message

    def _take(self, message: dict[str, Any]) -> None:
        """Keep diagnostics, and answer what the server asks: it has no settings but those that it was told."""
        if message.get("method") == "textDocument/publishDiagnostics":
            self.found[message["params"]["uri"]] = message["params"]["diagnostics"]
        elif "method" in message and "id" in message:
            items = message.get("params", {}).get("items") if message["method"] == "workspace/configuration" else None
            self._write({"id": message["id"], "result": None if items is None else [None for _ in items]})

    def _write(self, message: dict[str, Any]) -> None:
        content = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(f"Content-Length: {len(content)}\r\n\r\n".encode() + content)
        self.process.stdin.flush()

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        length = 0
        while (line := self.process.stdout.readline().strip()) != b"":
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        assert length, "the server ended"
        message = json.loads(self.process.stdout.read(length))
        assert isinstance(message, dict)
        return message


def _at(path: Path, line: int, character: int) -> dict[str, Any]:
    return {"textDocument": {"uri": path.as_uri()}, "position": {"line": line, "character": character}}


if __name__ == "__main__":
    raise SystemExit(install())
