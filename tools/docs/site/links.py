"""Sources as a build takes them: links to files and to the other language, names of files, lines in Chinese."""

import posixpath
import re
from pathlib import Path

_LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<target>[^)#:\s]+)(?P<place>#[^)\s]*)?\)")
_FILE = re.compile(r"^<!-- file: (?P<path>\S+) -->$", re.MULTILINE)
_FENCED = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
_WIDE = "\u3000-\u303f\u4e00-\u9fff\uff00-\uffef"
_BREAK = re.compile(rf"(?<=[{_WIDE}])\n *(?=[{_WIDE}])")


def readable(text: str) -> str:
    """Return a page's text with the names of files above their blocks, and no space where a Chinese line is broken."""
    parts = _FENCED.split(_FILE.sub(r"`\g<path>`:\n", text))
    return "".join(part if part.startswith("```") else _BREAK.sub("", part) for part in parts)


def rewritten(text: str, page: str, *, root: Path, sources: Path, chinese: bool) -> str:
    """Return a page's text with links to files as plain text and, in Chinese, to the page's translation.

    Args:
        page: the page's path in the repository.
        root: the repository, whose files a link may name.
        sources: folder with the pages of the site.
    """

    def one(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page), match["target"]))
        if target in ("README.md", "README.zh-CN.md") and target != ("README.zh-CN.md" if chinese else "README.md"):
            return match["text"]
        if (sources / target).suffix == ".md" and (sources / target).is_file():
            translated = target.replace("docs/", "docs/zh/", 1)
            if not chinese or page.startswith("docs/zh/") or not (sources / translated).is_file():
                return match[0]
            return f"[{match['text']}]({posixpath.relpath(translated, posixpath.dirname(page))})"
        if (root / target).exists() and not match["target"].endswith(".md"):
            return match["text"]
        return match[0]

    return _LINK.sub(one, text)
