"""Every command of the documentation prints what the pages record, in English and Chinese.

`python -m tools.docs.commands --write PAGE` records the output anew.
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import ROOT, SocketServer
from tools.docs.commands.blocks import blocks
from tools.docs.commands.output import agrees, recorded_anew
from tools.docs.commands.pages import (
    DOCS,
    commands_pages,
    copy_blocks,
    failures,
    rewrite,
    same_blocks,
    topics,
    translation,
)
from tools.docs.commands.session import Session

PAGES = commands_pages()
TRANSLATED = [*DOCS.glob("start/*.md"), *DOCS.glob("guides/*.md")]
TRANSLATED += [DOCS / name for name in ("index.md", "report.md", "ui.md", "pull_requests.md")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SocketServer]:
    with SocketServer(tmp_path_factory.mktemp("server")) as started:
        yield started


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_print_what_the_page_records(page: Path, server: SocketServer, tmp_path: Path) -> None:
    found = failures(page, tmp_path, server)
    assert not found, "\n\n".join(found)


@pytest.mark.parametrize("page", TRANSLATED, ids=lambda page: page.stem)
def test_the_chinese_page_has_the_same_commands_and_output(page: Path) -> None:
    assert translation(page).is_file()
    assert not same_blocks(page, translation(page)), f"python -m tools.docs.commands --write {page}"


@pytest.mark.parametrize("page", [*DOCS.glob("start/*.md"), *DOCS.glob("guides/*.md")], ids=lambda page: page.stem)
def test_every_command_of_a_guide_is_run_or_says_why_not(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    fences = len(re.findall(r"^```\w+$", text, re.MULTILINE))
    found = blocks(text)
    assert len(found) == fences
    assert all(block.file or block.not_run or block.commands for block in found)
    assert len(text.splitlines()) <= 250


@pytest.mark.parametrize("page", topics(), ids=lambda page: page.stem)
def test_every_launch_command_of_a_topic_is_run_or_says_why_not(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert (
        re.findall(
            r"^```\n(?!```)(?=\S)", re.sub(r"^```\w.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE
        )
        == []
    )
    found = [block for block in blocks(text) if re.search(r"^(\$ )?launch ", block.body, re.MULTILINE)]
    assert [block.body for block in found if not (block.file or block.not_run or block.commands)] == []


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md", "CONTRIBUTING.md"])
def test_links_of_pages_that_are_read_in_the_repository_lead_to_its_files(name: str) -> None:
    targets = re.findall(r"\]\(([^)#:\s]+)", (ROOT / name).read_text(encoding="utf-8"))
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []
    assert [target for target in targets if "docs/reference" in target] == []


@pytest.mark.parametrize(
    ("recorded", "printed", "same"),
    [
        ("a b", "a b", True),
        ("a b", "a  b", False),
        ("step … s", "step 3.1 s", True),
        ("step … s", "step 3.1 ms and more", False),
        ("a\n…\nz", "a\nb\nc\nz", True),
        ("a\n…\nz", "a\nz", True),
        ("a\n…\nz", "a\nb", False),
        ("…\n", "", True),
        ("a", "a\nb", False),
        ("a.c", "abc", False),
    ],
)
def test_elided_output(recorded: str, printed: str, same: bool) -> None:
    assert agrees(recorded.splitlines(), printed.splitlines()) is same


@pytest.mark.parametrize(
    ("recorded", "printed", "again"),
    [
        ("a\n…\nz", "a\nb\nz", "a\n…\nz"),
        ("old\n…\nend", "new\nb\nc\nEND", "new\n…\nEND"),
        ("step … s\nx", "step 2 s\ny", "step … s\ny"),
        ("", "MASTER_PORT=23456 a", "MASTER_PORT=… a"),
        ("a\n…\nmiddle 1\n…\nz", "b\nc\nmiddle 2\nd\ny", "b\n…\nmiddle 2\n…\ny"),
    ],
)
def test_output_is_recorded_anew_as_it_was_elided(recorded: str, printed: str, again: str) -> None:
    assert recorded_anew(recorded.splitlines(), printed.splitlines()) == again.splitlines()


INLINE = re.compile(
    r"`launch (?P<verb>[a-z-]+(?: (?:hf|mcore)-to-\w+| reshard| verify| merge| add| list| remove)?)(?P<words>[^`]*)`"
)
# Taylor's own options, which launch translates: they are in no help.
TAYLORS = {"-yaml", "-dryrun", "-check", "-layer_ratio", "-b_ratio", "--yaml_path", "--gbs", "--parser_result"}


@pytest.mark.slow
def test_verbs_and_options_that_sentences_name_exist(server: SocketServer, tmp_path: Path) -> None:
    session = Session(tmp_path, server)
    named: dict[str, set[str]] = {}
    for page in [*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "README.zh-CN.md"]:
        prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        for match in INLINE.finditer(prose):
            options = re.findall(r"(?<=[ \[])--?[a-z][\w-]*", match["words"].partition(" -- ")[0])
            verb = "convert hf-to-mcore" if match["verb"] == "convert" else match["verb"]
            named.setdefault(verb, set()).update(set(options) - TAYLORS)
    assert len(named) > 20
    unknown = []
    for verb, options in sorted(named.items()):
        command = [str(tmp_path / "bin" / "launch"), *verb.split(), "--help"]
        done = subprocess.run(command, env=session.env, capture_output=True, text=True, check=False)
        known = re.findall(r"(?<![\w-])--?[a-z][\w-]*", done.stdout)
        unknown += [verb] if done.returncode else [f"{verb} {option}" for option in sorted(options - set(known))]
    assert unknown == []


def test_a_page_that_differs_is_reported_and_rewritten(server: SocketServer, tmp_path: Path) -> None:
    page, chinese = tmp_path / "page.md", tmp_path / "chinese.md"
    text = "# P\n\n<!-- file: a/b.txt -->\n```text\nhello\n```\n"
    text += "\n```console\n$ cat \\\n    a/b.txt; x=1\nwrong\n$ test $x = 2\n```\n"
    page.write_text(text)
    chinese.write_text(text)
    first, second = failures(page, _folder(tmp_path, "one"), server)
    assert ("-wrong" in first, "+hello" in first, "exit code 1, recorded 0" in second) == (True, True, True)
    assert len(rewrite(page, _folder(tmp_path, "two"), server)) == 1
    assert "    a/b.txt; x=1\nhello\n$ test $x = 2\n(exit code 1)\n```" in page.read_text()
    assert failures(page, _folder(tmp_path, "three"), server) == []
    assert len(same_blocks(page, chinese)) == 1
    copy_blocks(page, chinese)
    assert same_blocks(page, chinese) == []


def test_a_job_that_is_not_run_is_still_checked(server: SocketServer, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    block = "<!-- not run: needs Slurm -->\n```bash\nlaunch run +recipe=tiny_qwen3 backend=megatron {}\n```\n"
    page.write_text(block.format("cluster=slurm") + block.format("parallel.tq=2"))
    (refused,) = failures(page, _folder(tmp_path, "run"), server)
    assert "parallel.tq" in refused


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("launch logs qwen3_8b-2 -f --rank 3", ""),
        ("launch logs qwen3_8b-2 --ran 3", "launch logs has no --ran"),
        ("launch convert reshard --checkpoint A --out B --format legacy parallel.tp=8", ""),
        ("launch convert verify A B --out C", "launch convert verify has no --out"),
        ("launch catalogue add DIR --name ours", ""),
        ("launch stop -x", "launch stop has no -x"),
    ],
)
def test_options_of_a_command_that_is_not_run_exist(
    line: str, wrong: str, server: SocketServer, tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"<!-- not run: needs a run -->\n```bash\n{line}\n```\n")
    found = failures(page, _folder(tmp_path, "run"), server)
    assert (wrong in found[0]) if wrong else (found == [])


def _folder(parent: Path, name: str) -> Path:
    (parent / name).mkdir()
    return parent / name
