"""The commonest tasks of the planner, clicked through in a real browser; then every part of it looked at by axe."""

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.browsing import Opened, opened
from tests.conftest import ROOT
from tests.ui.serving import Planner, planner

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytest.importorskip("dash")
PlaywrightTimeout: type[Exception] = pytest.importorskip("playwright.sync_api").TimeoutError
pytestmark = pytest.mark.slow

JOB = "#+recipe=qwen3_moe&backend=megatron&hardware=h100_80g"
SCRIPT = ROOT / "tests" / "importing" / "data" / "mindspeed_qwen3.sh"
# Each part, and what is waited for there.
_PARTS = {
    "Fields": ".field .note:not(:empty)",
    "Arguments": "#arguments td",
    "Backends": "#comparison td",
    "Search": "#search-result .fix",
    "Import": "#import-report td",
    "Export": "#command:not(:empty)",
}
# Milliseconds: a guard against hanging on a busy machine, no measurement.
_LONG = 180_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planner]:
    with planner(tmp_path_factory.mktemp("planner")) as running:
        running.live("+recipe=qwen3_moe", "backend=megatron")  # the processes are warm
        yield running


@pytest.fixture
def page(server: Planner, browser: "Browser") -> "Iterator[Opened]":
    """A planner with a job; at the end, nothing was said in the console and nothing asked of another host."""
    with opened(browser, server.url + JOB) as found:
        found.page.set_default_timeout(_LONG)
        verdict(found, "Passes all rules")
        yield found
        assert found.problems == []
        assert found.requests == []


def verdict(found: Opened, text: str) -> None:
    """Wait for a verdict."""
    found.page.locator("#verdict .badge", has_text=text).wait_for()


def words(found: Opened) -> list[str]:
    """Return the overrides of the page, as its text has them."""
    return str(found.page.locator("#text").input_value()).split("\n")


def go_to(found: Opened, name: str) -> None:
    found.page.get_by_role("navigation").get_by_role("button", name=name).click()


def choose(found: Opened, label: str, option: str) -> None:
    """Choose by keyboard and name, as somebody does who sees nothing."""
    wanted = found.page.get_by_role("option", name=option, exact=True)
    for timeout in (_LONG / 10, _LONG / 5, _LONG):
        if not wanted.is_visible():
            found.page.get_by_role("button", name=re.compile(rf"^{label} ")).focus()
            found.page.keyboard.press("Enter")
        # An answer that is drawn meanwhile closes the list, which is then opened again.
        with contextlib.suppress(PlaywrightTimeout):
            wanted.click(timeout=timeout)
            return
    raise AssertionError(f"{label} cannot be set to {option}")


def test_01_a_job_is_chosen_from_nothing(server: Planner, browser: "Browser") -> None:
    with opened(browser, server.url) as found:
        found.page.set_default_timeout(_LONG)
        found.page.get_by_text("Choose a recipe").wait_for()
        choose(found, "Recipe", "qwen3_moe")
        choose(found, "Backend", "MindSpeed-LLM")
        choose(found, "Hardware", "ascend_910c")
        verdict(found, "Passes all rules")
        assert words(found) == ["+recipe=qwen3_moe", "backend=mindspeed", "hardware=ascend_910c"]
        assert "token=" not in found.page.url
        assert found.problems == []


def test_02_a_value_is_typed_and_the_error_fixed_with_one_click(page: Opened) -> None:
    page.page.get_by_label("parallel.pp", exact=True).fill("3")
    verdict(page, "Refused")
    page.page.locator("#findings .fix").first.click()
    verdict(page, "Passes all rules")
    assert re.fullmatch(r"parallel\.pp=[124]", words(page)[-1])
    # The field shows what the fix set.
    field = page.page.get_by_label("parallel.pp", exact=True).element_handle()
    wanted = {"field": field, "value": words(page)[-1].rpartition("=")[2]}
    page.page.wait_for_function("({field, value}) => field.value === value", arg=wanted)


@pytest.mark.parametrize(
    ("pasted", "expected"),
    [
        (
            "launch run +recipe=qwen3_moe backend=megatron \\\n  'logging.wandb_project=my runs' \"name=x y\"",
            ["+recipe=qwen3_moe", "backend=megatron", "logging.wandb_project=my runs", "name=x y"],
        ),
        ("+recipe=qwen3_moe backend=mindspeed", ["+recipe=qwen3_moe", "backend=mindspeed"]),
        (
            "+recipe=qwen3_moe\nbackend=megatron\ndata.system=Say a=b to c",
            ["+recipe=qwen3_moe", "backend=megatron", "data.system=Say a=b to c"],
        ),
    ],
    ids=["command", "line", "value"],
)
def test_a_pasted_command_is_its_overrides(page: Opened, pasted: str, expected: list[str]) -> None:
    page.page.locator("#text").fill(pasted)
    page.page.get_by_label("Nodes").fill("2")
    page.page.wait_for_function("() => document.querySelector('#text').value.includes('cluster.nodes=2')")
    assert words(page) == [*expected, "cluster.nodes=2"]


def test_03_a_field_is_found_by_its_meaning(page: Opened) -> None:
    page.page.get_by_label("Search all fields").fill("micro-batch one device")
    page.page.get_by_label("Search all fields").fill("global batch")
    row = page.page.locator(".field", has_text="batch.global_batch_size").first
    # The field is drawn before its value and origin come.
    row.locator(".note", has_text="recipe").wait_for()
    page.page.get_by_label("Search all fields").fill("xyzzy")
    page.page.get_by_text("0 fields").wait_for()


def test_04_memory_and_time_follow_a_change(page: Opened) -> None:
    memory = page.page.locator(".figure dd", has_text="GiB").first
    memory.wait_for()
    before = memory.inner_text()
    page.page.get_by_label("Nodes").fill("4")
    page.page.locator("#layout-line", has_text="4 × 8").wait_for()
    page.page.wait_for_function("text => document.querySelector('.figure dd').innerText !== text", arg=before)


def test_05_a_link_opens_the_same_job(page: Opened, server: Planner, browser: "Browser") -> None:
    """The first field that the page draws included, and a version, whose list comes later than its value."""
    page.page.get_by_label("parallel.tp", exact=True).fill("2")
    page.page.wait_for_url("**#*parallel.tp=2*")
    choose(page, "Version", "4.4.2")
    page.page.wait_for_url("**#*backend.version=4.4.2*")
    page.page.get_by_role("button", name="Copy link").click()
    page.page.get_by_text("Link copied.").wait_for()
    link = page.page.evaluate("navigator.clipboard.readText()")
    assert server.url.partition("token=")[2] not in link
    with opened(browser, server.url + "#" + link.partition("#")[2]) as other:
        other.page.set_default_timeout(_LONG)
        other.page.locator("#verdict", has_text="4.4.2").wait_for()
        field = other.page.get_by_label("parallel.tp", exact=True)
        field.wait_for()
        other.page.wait_for_function("found => found.value === '2'", arg=field.element_handle())
        assert words(other) == words(page)
        assert words(other)[-2:] == ["parallel.tp=2", "backend.version=4.4.2"]


def test_fields_that_come_and_go_keep_their_values(page: Opened) -> None:
    page.page.get_by_label("parallel.tp", exact=True).fill("2")
    search = page.page.get_by_label("Search all fields")
    for text, shown in (
        ("xyzzy", "0 fields"),
        ("tensor parallel", re.compile(r"[1-9]\d* fields")),
        ("", "The parallel strategy"),
    ):
        search.fill(text)
        page.page.locator("#section-doc", has_text=shown).wait_for()
    field = page.page.get_by_label("parallel.tp", exact=True)
    page.page.wait_for_function("found => found.value === '2'", arg=field.element_handle())
    assert words(page)[-1] == "parallel.tp=2"
    field.fill("")
    page.page.wait_for_function("() => !document.querySelector('#text').value.includes('parallel.tp')")


def test_a_model_of_the_hub_is_kept_though_no_chooser_lists_it(server: Planner, browser: "Browser") -> None:
    job = "model=Qwen/Qwen3-8B&task=pretrain&backend=megatron&hardware=h100_80g"
    with opened(browser, f"{server.url}#{job}") as found:
        found.page.set_default_timeout(_LONG)
        verdict(found, "Refused")
        found.page.get_by_label("parallel.pp", exact=True).fill("2")
        found.page.wait_for_url("**parallel.pp=2*")
        assert words(found) == [*job.split("&"), "parallel.pp=2"]
        found.page.locator("#choose-model", has_text="Qwen/Qwen3-8B").wait_for()


def test_06_backends_side_by_side(page: Opened) -> None:
    go_to(page, "Backends")
    page.page.locator("#comparison caption", has_text="differences").wait_for()
    assert page.page.locator("#comparison h3").count() == 2
    page.page.get_by_text("All arguments, by field").click()
    page.page.locator("#comparison td code", has_text="expert_model_parallel_size=8").first.wait_for()


def test_07_a_search_runs_is_cancelled_and_its_best_applied(page: Opened) -> None:
    go_to(page, "Search")
    page.page.get_by_role("button", name="Start search").click()
    page.page.locator("#search-result .fix").first.wait_for()
    page.page.get_by_role("button", name="Cancel").click()
    page.page.locator("#search-progress", has_text="cancelled").wait_for()
    apply = page.page.locator("#search-result .fix").first
    right = apply.evaluate(
        "each => each.getBoundingClientRect().right - each.closest('.scroll').getBoundingClientRect().right"
    )
    assert right <= 0  # seen without scrolling aside
    step = page.page.locator(".figure", has_text="step").locator("dd")
    before = step.inner_text()
    page.page.locator("#search-result .fix").first.click()
    page.page.wait_for_function("text => document.querySelectorAll('.figure dd')[1].innerText !== text", arg=before)
    assert len(words(page)) > 3


def test_08_a_script_is_imported_ported_and_adopted(page: Opened) -> None:
    before = words(page)
    go_to(page, "Import")
    page.page.locator("#upload input[type=file]").set_input_files(SCRIPT)
    page.page.get_by_text("is shown below").wait_for()
    choose(page, "Port to", "Megatron-SWIFT")
    page.page.get_by_role("button", name="Read it").click()
    page.page.locator("#import-report h3", has_text="ported to Megatron-SWIFT").wait_for()
    page.page.get_by_role("button", name="Make it the job").click()
    page.page.wait_for_function("() => !document.querySelector('#text').value.includes('+recipe')")
    assert {"backend=megatron", "model.num_hidden_layers=28"} <= set(words(page))
    # The fields are shown again, with the job's own values.
    page.page.locator(".field .note", has_text="(chosen by you)").first.wait_for()
    page.page.locator("#verdict", has_not_text="qwen3_moe").wait_for()
    page.page.get_by_role("button", name="Undo").click()
    page.page.wait_for_function("text => document.querySelector('#text').value === text", arg="\n".join(before))
    page.page.locator("#verdict", has_text="qwen3_moe").wait_for()


def test_09_files_are_downloaded(page: Opened) -> None:
    go_to(page, "Export")
    got = {}
    for name in ("Script (.sh)", "Job (.yaml)", "Findings (.json)", "Report (.html)"):
        with page.page.expect_download() as download:
            page.page.get_by_role("button", name=name).click()
        got[download.value.suggested_filename] = Path(download.value.path()).read_text(encoding="utf-8")
    assert "megatron pt" in got["qwen3_moe.sh"]
    assert "expert_model_parallel_size" in got["qwen3_moe.sh"]
    assert json.loads(got["qwen3_moe.json"])["ok"] is True
    assert "num_hidden_layers: 48" in got["qwen3_moe.yaml"]
    assert "<h1>qwen3_moe: training report</h1>" in got["qwen3_moe.html"]


def test_10_arguments_are_filtered(page: Opened) -> None:
    go_to(page, "Arguments")
    page.page.locator("#arguments caption", has_text="arguments").wait_for()
    page.page.get_by_label("Search arguments").fill("expert parallel")
    page.page.locator("#arguments caption", has_text=re.compile(r"^\d of")).wait_for()
    page.page.locator("#arguments td", has_text="expert_model_parallel_size").first.wait_for()


def test_a_large_file_is_refused_with_its_size_and_nothing_is_lost(page: Opened, tmp_path: Path) -> None:
    large = tmp_path / "large.sh"
    large.write_bytes(b"#" * 50 * 2**20)
    go_to(page, "Import")
    page.page.locator("#script").fill("mine")
    page.page.locator("#upload input[type=file]").set_input_files(large)
    page.page.get_by_text("large.sh is refused: it has 50.0 MiB").wait_for()
    assert page.page.locator("#script").input_value() == "mine"


def test_a_damaged_link_is_a_mistake_that_says_so(server: Planner, browser: "Browser") -> None:
    with opened(browser, server.url + "#+job=/etc/passwd&name=%24%7Boc.env%3AHOME%7D") as found:
        found.page.set_default_timeout(_LONG)
        verdict(found, "Not a job yet")
        found.page.locator("#findings", has_text="files of the server are not read").wait_for()
        assert found.problems == []


@pytest.mark.sample(keep=1)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_every_part_is_usable_without_a_mouse_or_eyes(
    server: Planner, browser: "Browser", width: int, dark: bool
) -> None:
    """With findings, fixes and reports on it, not only empty."""
    with opened(browser, server.url + JOB + "&parallel.pp=3", width=width, dark=dark) as found:
        found.page.set_default_timeout(_LONG)
        found.page.locator("#findings .fix").first.wait_for()
        for part, shows in _PARTS.items():
            go_to(found, part)
            if part == "Search":
                found.page.get_by_role("button", name="Start search").click()
            if part == "Import":
                found.page.locator("#script").fill(SCRIPT.read_text(encoding="utf-8"))
                found.page.get_by_role("button", name="Read it").click()
            found.page.locator(shows).first.wait_for()
            assert (part, found.axe()) == (part, [])
            # Nothing is wider than the window.
            assert (part, found.page.evaluate("document.documentElement.scrollWidth")) <= (part, width)
        assert found.problems == []
