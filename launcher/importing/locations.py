"""Finds where an argument stands in the text of the input."""

import re
from collections.abc import Mapping

from launcher.importing.reading import line_of_key
from launcher.syntax import is_count


class SourceLocations:
    """Finds the line of an argument in the text of the input."""

    def __init__(self, sources: Mapping[str, str], default: str) -> None:
        self.sources, self.default = sources, default

    def of(self, flag: str) -> str:
        """Return `file:line` of the last occurrence of the argument."""
        spelled = re.escape(flag).replace("_", "[-_]").replace("\\-", "[-_]")
        pattern = re.compile(rf"(?<![\w-])-{{0,2}}{spelled}(?![\w-])")
        for file, text in self.sources.items():
            found = [match.start() for match in pattern.finditer(text)]
            if found:
                return f"{file}:{text.count(chr(10), 0, found[-1]) + 1}"
            if file.endswith((".yaml", ".yml")) and (line := line_of_key(text, flag)):
                return f"{file}:{line}"
        return self.default

    def of_variable(self, name: str) -> str:
        """Return `file:line` of the last place where an environment variable is set."""
        pattern = re.compile(rf"(?<![\w-]){re.escape(name)}(?:=|[\"']?:)")
        for file, text in self.sources.items():
            found = [match.start() for match in pattern.finditer(text)]
            if found:
                return f"{file}:{text.count(chr(10), 0, found[-1]) + 1}"
        return self.default

    def hint(self, where: str, text: str) -> tuple[str, ...]:
        """Return a hint for a value that is missing because a backslash at the end of a line is missing."""
        file, _, number = where.rpartition(":")
        lines = self.sources.get(file, "").splitlines()
        if "needs a value" not in text or not is_count(number) or int(number) >= len(lines):
            return ()
        line, following = lines[int(number) - 1].rstrip(), lines[int(number)].strip()
        ends = following.startswith(("#", "--")) or not following or line.endswith("\\")
        return () if ends else ("a backslash at the end of the line, before the line with the value",)
