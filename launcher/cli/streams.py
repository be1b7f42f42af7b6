"""Standard output and error that never raise: on a closed pipe, a full disk, or characters that cannot be encoded.

A verb is never aborted because its output cannot be written: the rest is discarded, and the exit code reports it. A
closed pipe (`| head -1`) is not an error; a verb that prints until it is stopped (`logs -f`) ends then.
"""

import codecs
import io
import os
import sys
from typing import Any

# Replacements for characters that an encoding lacks; letters lose their accents, all else is written as \uXXXX.
_TYPOGRAPHY = (
    "… ...   × x   ÷ /   · -   • *   → ->   ← <-   ↔ <->   ⇒ =>   ≤ <=   ≥ >=   ≠ !=   ≈ ~   ± +-   − -   – -   — -   "
    "∞ inf   µ u   ‘ '   ’ '   “ \"   ” \"   ° deg   § section   ✓ ok   ✗ x   ² ^2   ³ ^3   ½ 1/2   ¼ 1/4   ¾ 3/4   "
    "█ #   ▉ #   ▊ #   ▋ #   ▌ #   ▍ #   ▎ #   ▏ #   ░ .   ▒ :   ▓ #   ▁ _   ▂ _   ▃ -   ▄ -   ▅ =   ▆ =   ▇ #   "
    "│ |   ┃ |   ─ -   ━ -   ├ +   └ +   ┌ +   ┐ +   ┘ +   ┤ +   ┬ +   ┴ +   ┼ +   ╭ +   ╮ +   ╯ +   ╰ +   ▶ >   ◀ <"
)
ASCII = {sign: text for sign, _, text in (pair.partition(" ") for pair in _TYPOGRAPHY.split("   "))}
_ERRORS = "launch_ascii"
# Verbs that print until they are stopped.
_ENDLESS = ("logs",)
# Keeps references: a text stream without one is closed, with the buffer that it shares with its replacement.
_REPLACED: list[Any] = []


class _Stream(io.TextIOWrapper):
    """A text stream that discards its output once it cannot be written."""

    trouble: OSError | None = None
    endless = False

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError as error:
            self._give_up(error)
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)
        if not isinstance(error, BrokenPipeError):
            self.trouble = error
        elif self.endless:
            raise SystemExit(0) from None


def protect() -> None:
    """Replace standard output and error by such streams."""
    codecs.register_error(_ERRORS, replaced)
    for name in ("stdout", "stderr"):
        old = getattr(sys, name)
        if isinstance(old, io.TextIOWrapper):
            new = _Stream(
                old.buffer, old.encoding, _ERRORS, line_buffering=old.line_buffering, write_through=old.write_through
            )
            setattr(sys, name, new)
            _REPLACED.append(old)


def stop_without_reader(verb: str) -> None:
    """Let a verb that prints until it is stopped end once its output pipe is closed."""
    if verb in _ENDLESS and isinstance(sys.stdout, _Stream):
        sys.stdout.endless = True


def close() -> str:
    """Flush both streams; return, and print to standard error, why output could not be written ("": it was)."""
    trouble = ""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, _Stream):
            stream.endless = False
            stream.flush()
            if stream.trouble is not None and stream is sys.stdout:
                trouble = f"launch: standard output cannot be written: {stream.trouble.strerror}"
                print(trouble, file=sys.stderr)
    return trouble


def replaced(error: UnicodeError) -> tuple[str, int]:
    """Return the replacement for characters that an encoding lacks (an error handler of `codecs`)."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_ascii, error.object[error.start : error.end])), error.end


def _ascii(sign: str) -> str:
    if sign in ASCII:
        return ASCII[sign]
    import unicodedata

    plain = unicodedata.normalize("NFKD", sign).encode("ascii", "ignore").decode("ascii")
    return plain or (f"\\u{ord(sign):04x}" if ord(sign) < 0x10000 else f"\\U{ord(sign):08x}")


def json_text(tree: Any) -> str:
    """Return JSON; characters that standard output's encoding lacks are escaped, so that their value is kept."""
    import json

    text = json.dumps(tree, indent=2, ensure_ascii=False)
    if not text.isascii():
        try:
            text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
        except (UnicodeEncodeError, LookupError):
            return json.dumps(tree, indent=2)
    return text
