"""Pages as the site takes them: links, names of files, Chinese lines, and words of the Chinese search."""

import re
from pathlib import Path

import pytest

from tests.sampling import ROOT
from tools.docs import written

chinese = pytest.importorskip("tools.docs.site.chinese", reason="no Sphinx: pip install 'launch-llm[docs]'")
links = pytest.importorskip("tools.docs.site.links")
sources = pytest.importorskip("tools.docs.site.sources")


def test_a_file_is_named_above_its_block_and_chinese_lines_are_joined() -> None:
    text = "<!-- file: a/b.sh -->\n```bash\n任务\n  规则\n```\n任务，\n  规则\nand\n任务\n- 列表\n"
    assert links.readable(text) == "`a/b.sh`:\n\n```bash\n任务\n  规则\n```\n任务，规则\nand\n任务\n- 列表\n"


@pytest.mark.parametrize(
    ("target", "english", "in_chinese"),
    [
        ("start/lora.md", "[x](start/lora.md)", "[x](zh/start/lora.md)"),
        ("security.md#a", "[x](security.md#a)", "[x](zh/security.md)"),
        ("exhaustive.md", "[x](exhaustive.md)", "[x](zh/exhaustive.md)"),
        ("decisions/forks.md", "[x](decisions/forks.md)", "[x](decisions/forks.md)"),
        ("../pyproject.toml", "x", "x"),
        ("absent.md", "[x](absent.md)", "[x](absent.md)"),
        ("https://example.com/a.md", "[x](https://example.com/a.md)", "[x](https://example.com/a.md)"),
    ],
)
def test_links_of_an_english_page(target: str, english: str, in_chinese: str) -> None:
    def made(chinese_site: bool) -> str:
        text: str = links.rewritten(f"[x]({target})", "docs/running.md", root=ROOT, sources=ROOT, chinese=chinese_site)
        return text

    assert (made(False), made(True)) == (english, in_chinese)


def test_words_of_a_query_are_words_of_the_index() -> None:
    """Each pair and each English word of a term is indexed wherever the term stands in a sentence."""
    language = chinese.ChinesePairs({})
    found = {language.stem(word) for word in language.split("用 LoRA 微调时从断点续训，parallel.tp=2。")}
    assert {"断点", "点续", "续训", "lora", "微调", "parallel", "tp", "用"} <= found
    assert "微调时" not in found


def test_every_page_of_the_navigation_exists() -> None:
    for index in (ROOT / "docs" / "index.md", ROOT / "docs" / "zh" / "index.md"):
        for line in index.read_text(encoding="utf-8").splitlines():
            if line.startswith(("start/", "guides/")):
                assert (Path(index).parent / f"{line}.md").is_file(), line


def test_a_translation_shows_the_tables_and_outputs_of_its_page(tmp_path: Path) -> None:
    (tmp_path / "zh").mkdir()
    (tmp_path / "a.md").write_text("<!-- runs: begin -->\n| 1 |\n<!-- runs: end -->\n```console\n$ x --y\nout\n```\n")
    page = tmp_path / "zh" / "a.md"
    text = "表：\n\n<!-- runs: as in ../a.md -->\n\n<!-- command: as in ../a.md -->\n```console\n$ x --y\n```\n完\n"
    assert sources.with_shared(text, page) == "表：\n\n| 1 |\n\n\n```console\n$ x --y\nout\n```\n完\n"
    for absent in (text.replace("--y", "--z"), text.replace("runs", "rows")):
        with pytest.raises(sources.NotShared):
            sources.with_shared(absent, page)


def test_every_reference_of_a_translation_is_to_what_its_page_has() -> None:
    for page in (ROOT / "docs" / "zh").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        shown = sources.with_shared(text, page)
        assert not re.search(r"^<!-- \w+: as in", shown, re.MULTILINE)
        english = (ROOT / "docs" / page.name).read_text(encoding="utf-8")
        marked = set(re.findall(r"^<!-- (\w+): begin -->$", english, re.MULTILINE))
        assert set(re.findall(r"^<!-- (\w+): as in \S+ -->$", text, re.MULTILINE)) - {"command"} == marked


def test_a_generator_marks_what_the_translation_shows() -> None:
    parts = {"made": "Written by", "rows": "| a |", "none": "| b |"}
    page = written.marked("# T\n\nWritten by `x`.\n\n| a | 1 |\n|---|---|\n| 2 | 3 |\n\n## Next\n", parts)
    assert "<!-- rows: begin -->\n| a | 1 |\n|---|---|\n| 2 | 3 |\n<!-- rows: end -->\n\n## Next" in page
    for name in parts:
        assert f"<!-- {name}: begin -->" in page
        assert f"<!-- {name}: end -->" in page
