"""The planner by keyboard alone, in two tabs with a job each, and through every section of fields."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from launcher.job import FieldInfo
from tests.browser.browsing import opened
from tests.conftest import ROOT
from tests.ui.serving import Planner, planner

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytest.importorskip("dash")
choices = pytest.importorskip("launcher.ui.choices")
pytestmark = pytest.mark.slow

SCRIPT = ROOT / "tests" / "importing" / "data" / "mindspeed_qwen3.sh"
MOE = "+recipe=qwen3_moe&backend=megatron&hardware=h100_80g"
DEEPSEEK = "+recipe=deepseek_v3&backend=mindspeed&hardware=ascend_910c&cluster.nodes=32"
# Milliseconds: a guard against hanging on a busy machine, no measurement.
_LONG = 180_000
# The name of what has the focus, as a screen reader says it.
_FOCUS = """() => { const at = document.activeElement, label = at.labels && at.labels[0];
  if (at === document.body) { return "nothing"; }
  return at.getAttribute("aria-label") || (label ? label.innerText : at.innerText); }"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planner]:
    with planner(tmp_path_factory.mktemp("planner")) as running:
        running.live("+recipe=qwen3_moe", "backend=megatron")  # the processes are warm
        yield running


class Keys:
    """A person with a keyboard: no pointer, no selector."""

    def __init__(self, page: "Page") -> None:
        self.page = page

    def focus(self) -> str:
        return str(self.page.evaluate(_FOCUS))

    def go(self, name: str, key: str = "Tab") -> None:
        """Press Tab until what has that name is reached."""
        for _ in range(150):
            if re.fullmatch(name, self.focus()):
                return
            self.page.keyboard.press(key)
        raise AssertionError(f"{name} is not reached by {key}; the focus is on {self.focus()!r}")

    def press(self, name: str, key: str = "Tab") -> None:
        self.go(name, key)
        self.page.keyboard.press("Enter")

    def choose(self, label: str, text: str, key: str = "Tab") -> None:
        """Open a list, type a part of an option, and take the first one."""
        self.press(label, key)
        self.focused(f"Search {label.lower()}")
        self.page.keyboard.type(text)
        self.page.get_by_role("option", name=text, exact=True).wait_for()
        self.page.keyboard.press("ArrowDown")
        self.focused(text)
        self.page.keyboard.press("Enter")
        self.focused(label)

    def focused(self, name: str) -> None:
        self.page.wait_for_function(f"name => ({_FOCUS})() === name", arg=name)

    def verdict(self, text: str) -> None:
        self.page.locator("#verdict .badge", has_text=text).wait_for()

    def words(self) -> list[str]:
        return str(self.page.locator("#text").input_value()).split("\n")


def test_everything_is_done_by_keyboard_and_the_focus_is_never_lost(server: Planner, browser: "Browser") -> None:
    with opened(browser, server.url) as found:
        keys, page = Keys(found.page), found.page
        page.set_default_timeout(_LONG)
        page.get_by_text("Choose a recipe").wait_for()
        keys.choose("Recipe", "qwen3_8b")
        keys.choose("Model", "qwen3_14b")
        keys.choose("Hardware", "h100_80g")
        keys.choose("Backend", "Megatron-SWIFT", "Shift+Tab")
        keys.verdict("Passes all rules")
        keys.go(r"parallel\.pp")
        page.keyboard.type("3")
        keys.verdict("Refused")
        page.locator("#findings .fix").first.wait_for()
        keys.press(r"parallel\.pp=\d", "Shift+Tab")
        keys.verdict("Passes all rules")
        keys.focused("Verdict")  # its button is gone
        keys.press("Search")
        keys.press("Start search")
        keys.focused("Cancel")
        page.locator("#search-progress", has_text="estimated").wait_for()
        page.keyboard.press("Enter")
        page.locator("#search-progress", has_text="cancelled").wait_for()
        keys.focused("Start search")
        keys.press("Import", "Shift+Tab")
        keys.go("Script")
        page.evaluate("text => navigator.clipboard.writeText(text)", SCRIPT.read_text(encoding="utf-8"))
        page.keyboard.press("Control+V")
        keys.press("Read it")
        page.locator("#import-report h3").first.wait_for()
        keys.press("Make it the job")
        keys.focused("Fields")
        page.wait_for_function("() => !document.querySelector('#text').value.includes('+recipe')")
        keys.verdict("Passes all rules")
        keys.press("Export")
        keys.go(r"Script \(\.sh\)")
        with page.expect_download() as download:
            page.keyboard.press("Enter")
        assert "pretrain_gpt.py" in Path(download.value.path()).read_text(encoding="utf-8")
        keys.press("Undo", "Shift+Tab")
        page.wait_for_function("() => document.querySelector('#text').value.includes('+recipe=qwen3_8b')")
        assert found.problems == []


def test_an_open_list_has_a_name(server: Planner, browser: "Browser") -> None:
    with opened(browser, server.url) as found:
        keys = Keys(found.page)
        found.page.get_by_text("Choose a recipe").wait_for()
        keys.press("Recipe")
        keys.focused("Search recipe")
        # That an option contains the button that is chosen is Dash's own; both have the name.
        assert [each for each in found.axe() if not each.startswith("nested-interactive")] == []
        found.page.keyboard.press("Escape")
        keys.focused("Recipe")


def test_two_tabs_have_a_job_each(server: Planner, browser: "Browser") -> None:
    """Verdicts, searches, fields and files of one never show in the other."""
    with opened(browser, server.url) as found:
        pages = found.page, found.page.context.new_page()
        for page, job in zip(pages, (MOE, DEEPSEEK), strict=True):
            page.set_default_timeout(_LONG)
            page.goto(f"{server.origin}/#{job}")
            Keys(page).verdict("Passes all rules")
        for page in pages:
            page.get_by_role("navigation").get_by_role("button", name="Search").click()
            page.get_by_role("button", name="Start search").click()
        one, two = pages
        one.locator("#search-progress", has_text="estimated").wait_for()
        two.locator("#search-progress", has_text="waiting: 1 before it").wait_for()
        one.get_by_role("button", name="Cancel").click()
        one.locator("#search-progress", has_text="cancelled").wait_for()
        two.locator("#search-progress", has_text="estimated").wait_for()
        two.get_by_role("button", name="Cancel").click()
        for page, size in zip(pages, ("2", "8"), strict=True):
            page.get_by_role("navigation").get_by_role("button", name="Fields").click()
            page.get_by_label("parallel.tp", exact=True).fill(size)
        for page, job, size in zip(pages, (MOE, DEEPSEEK), ("2", "8"), strict=True):
            page.locator("#layout-line", has_text=f"tp {size} ").wait_for()
            assert Keys(page).words() == [*job.split("&"), f"parallel.tp={size}"]
            page.get_by_role("navigation").get_by_role("button", name="Export").click()
            with page.expect_download() as download:
                page.get_by_role("button", name="Job (.yaml)").click()
            name = job.partition("&")[0].removeprefix("+recipe=")
            assert download.value.suggested_filename == f"{name}.yaml"
            assert f"tp: {size}" in Path(download.value.path()).read_text(encoding="utf-8")
        assert found.problems == []


def _edited(fields: tuple[FieldInfo, ...]) -> tuple[str, str]:
    """Return a field of a section and a value that it takes."""
    values = {"whole number": "2", "number": "0.5", "text": "abc"}
    plain = [each for each in fields if choices.kind(each) in values and not each.meta.choices]
    if plain:
        return plain[0].path, values[choices.kind(plain[0])]
    (first, *_) = fields
    return first.path, next(iter(first.meta.choices), "[1]")


@pytest.mark.sample(keep=3)
@pytest.mark.parametrize("name", choices.sections())
def test_a_field_of_every_section_is_edited_and_cleared(name: str, server: Planner, browser: "Browser") -> None:
    fields = choices.sections()[name].fields
    path, value = _edited(fields)
    with opened(browser, f"{server.url}#{MOE}") as found:
        page = found.page
        page.set_default_timeout(_LONG)
        Keys(page).verdict("Passes all rules")
        page.get_by_role("button", name=re.compile("^Section ")).focus()
        page.keyboard.press("Enter")
        page.get_by_role("option", name=name, exact=True).click()
        row = page.locator(".field").filter(has=page.get_by_label(path, exact=True))
        row.wait_for()
        page.get_by_label(path, exact=True).click()
        page.keyboard.type(value)
        page.wait_for_function("word => document.querySelector('#text').value.endsWith(word)", arg=f"\n{path}={value}")
        row.locator(".note", has_text="chosen by you").or_(page.get_by_text("Not a job yet")).first.wait_for()
        page.get_by_label(path, exact=True).clear()
        page.wait_for_function("text => document.querySelector('#text').value === text", arg="\n".join(MOE.split("&")))
        Keys(page).verdict("Passes all rules")
        row.locator(".note", has_not_text="chosen by you").wait_for(state="attached")
        assert found.problems == []
