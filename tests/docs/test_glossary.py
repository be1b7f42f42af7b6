"""Chinese pages use the glossary's terms, and no other word for them."""

import re
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tools.docs.reference.glossary import terms

PAGES = [*(ROOT / "docs" / "zh").rglob("*.md"), ROOT / "README.zh-CN.md"]
_CODE = re.compile(r"^```.*?^```$|`[^`\n]*`|\]\([^)]*\)", re.DOTALL | re.MULTILINE)
FORBIDDEN = {variant: term.chinese for term in terms() for variant in term.forbidden}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_no_other_word_for_a_term(page: Path) -> None:
    text = _CODE.sub("", page.read_text(encoding="utf-8"))
    assert [f"{variant}: {term}" for variant, term in FORBIDDEN.items() if variant in text] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_chinese_with_its_punctuation(page: Path) -> None:
    """A sentence in English, or a Chinese one with ASCII commas, is one that nobody translated or read."""
    text = _CODE.sub("", page.read_text(encoding="utf-8"))
    assert re.findall(r"[\u4e00-\u9fff][,;?!][\u4e00-\u9fff]", text) == []
    prose = [line for line in text.splitlines() if len(line) > 30 and not line.startswith(("|", "<", "$"))]
    assert [line for line in prose if not re.search(r"[\u4e00-\u9fff]", line)] == []


def test_the_glossary_has_one_word_for_a_term() -> None:
    assert len({term.chinese for term in terms()}) == len(terms())
    assert not set(FORBIDDEN) & {term.chinese for term in terms()}
