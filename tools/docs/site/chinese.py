"""Offline search in Chinese: pairs of neighbouring characters, and English words as they are written.

Chinese has no spaces. Sphinx would use jieba, whose dictionary lacks this field's terms, and which the browser lacks:
there queries are only split at spaces, and 断点续训 is not found. Pairs need no dictionary: a term is found if all its
pairs are on the page. A single character is a word of its own. A query is first cut at the glossary's terms, so that
离线分词器 does not ask for the pair 线分.
"""

import re

from sphinx.search import SearchLanguage

from tools.docs.reference.glossary import terms

_PARTS = re.compile(r"[\u4e00-\u9fff]+|[A-Za-z0-9_]+")


class ChinesePairs(SearchLanguage):
    """Splits text for the index as `js_splitter_code` splits a query in the browser."""

    lang = "zh"
    language_name = "Chinese"
    js_splitter_code = """
var splitQuery = (query) => (
  query.match(/TERMS|(?:(?!(?:TERMS))[\\u4e00-\\u9fff])+|[A-Za-z0-9_]+/g) || []
).flatMap((part) =>
  /[\\u4e00-\\u9fff]/.test(part) && part.length > 1
    ? Array.from({length: part.length - 1}, (_, i) => part.slice(i, i + 2)) : [part]);
"""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        names = sorted((term.chinese for term in terms() if _is_chinese(term.chinese)), key=len, reverse=True)
        self.js_splitter_code = type(self).js_splitter_code.replace("TERMS", "|".join(names))

    def split(self, input: str) -> list[str]:
        """Return the words of a text: pairs of Chinese characters, single ones, English words."""
        words: list[str] = []
        for part in _PARTS.findall(input):
            words += [part[i : i + 2] for i in range(len(part) - 1)] if _is_chinese(part) and len(part) > 1 else []
            words += list(part) if _is_chinese(part) else [part]
        return words

    def stem(self, word: str) -> str:
        """Return the word as the browser compares it."""
        return word.lower()

    def word_filter(self, word: str) -> bool:
        """Return whether a word belongs in the index."""
        return not word.isdigit()


def _is_chinese(part: str) -> bool:
    return part[0] >= "\u4e00"
