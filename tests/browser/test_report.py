"""The report in a real browser: it asks nothing of the network, and filter, hover, zoom and copy do what they say."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from launcher import api
from launcher.report.content import entry_of
from launcher.report.page import Searched, page
from tests.browser.browsing import Opened, opened

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.slow
HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>\"'&{{7*7}}"
WORDS = ["+recipe=qwen3_moe", "backend=megatron", "hardware=h100_80g", "cluster.nodes=4", "parallel.pp=4"]
DRAW = """async () => { for (const chart of document.querySelectorAll('.chart')) {
    chart.scrollIntoView(); while (!chart.dataset.drawn) await new Promise((done) => setTimeout(done, 50)); } }"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of two jobs, one of them refused and full of hostile names, with a search."""
    pytest.importorskip("plotly")
    job = api.compose(WORDS)
    hostile = dataclasses.replace(
        api.compose([*WORDS, "parallel.tp=3"]),
        name=HOSTILE,
        output_dir=HOSTILE,
        tokenizer=dataclasses.replace(job.tokenizer, path=HOSTILE),
        backend=dataclasses.replace(job.backend, args={"load": HOSTILE, HOSTILE: HOSTILE}),
    )
    result = api.search(job, top=3, progress=lambda done, total, found: done < 40)
    entries = [entry_of(job, "qwen3_moe", WORDS, 1), entry_of(hostile, HOSTILE, [f"name={HOSTILE}"], 2)]
    file = tmp_path_factory.mktemp("report") / "report.html"
    file.write_text(page(entries, Searched(job=job, found=result.found)), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def shown(browser: "Browser", report: Path) -> Iterator[Opened]:
    """The report, opened once: a page takes a second to unpack. No test needs what another one leaves."""
    with opened(browser, report.as_uri()) as found:
        found.page.set_default_timeout(180_000)
        found.page.wait_for_selector("html[data-ready]")
        found.page.evaluate(DRAW)
        yield found
        assert found.problems == []
        assert found.requests == []
        assert found.page.evaluate("window.hacked") is None


def test_everything_is_drawn_and_a_refused_job_has_its_findings(shown):
    assert shown.page.locator(".chart[data-drawn]").count() == shown.page.locator(".chart").count() >= 6
    assert shown.page.locator("#job-2 li.error").count() >= 1
    assert "refused" in shown.page.locator("#job-2 .verdict").inner_text()
    assert HOSTILE in shown.page.locator("#job-2 h2").inner_text()
    assert shown.page.locator("#devices-1 .points path").count() == 32


def test_arguments_are_filtered_by_text_and_origin(shown):
    rows = shown.page.locator("#arguments-1 tbody tr:visible")
    every = rows.count()
    shown.page.select_option("#origin-1", "")
    shown.page.fill("#filter-1", "pipeline parallel")
    assert rows.count() == 1
    assert "pipeline_model_parallel_size" in rows.first.inner_text()
    assert shown.page.locator("#arguments-1-count").inner_text() == f"1 of {every} arguments"
    shown.page.fill("#filter-1", "")
    shown.page.select_option("#origin-1", "chosen by you")
    assert 0 < rows.count() < every
    assert set(rows.locator("td:nth-child(4)").all_inner_texts()) == {"chosen by you"}


def test_findings_are_hidden_by_severity(shown):
    box = shown.page.locator("#findings-1 .severity[value=warning]")
    warnings = shown.page.locator("#findings-1 li.warning:visible")
    assert warnings.count() > 0
    box.uncheck()
    assert warnings.count() == 0
    box.check()
    assert warnings.count() > 0


def test_hovering_a_device_names_its_groups_and_the_others_fade(shown):
    shown.page.select_option("#devices-1-axis", label="pp group")
    shown.page.locator("#devices-1").scroll_into_view_if_needed()
    box = shown.page.locator("#devices-1 .points path").nth(9).bounding_box()
    shown.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    shown.page.wait_for_selector("#devices-1 .hovertext")
    text = shown.page.locator("#devices-1 .hovertext").text_content()
    assert "rank 9" in text
    assert "pp 1 of 4: ranks 1, 9, 17, 25" in text
    shown.page.wait_for_function("() => Array.isArray(document.getElementById('devices-1').data[0].marker.opacity)")
    opacity = shown.page.evaluate("document.getElementById('devices-1').data[0].marker.opacity")
    assert [rank for rank, each in enumerate(opacity) if each == 1] == [1, 9, 17, 25]


def test_the_timeline_zooms_by_keyboard_and_mouse(shown):
    span = "(() => { const [a, b] = document.getElementById('timeline-1')._fullLayout.xaxis.range; return b - a; })()"
    whole = shown.page.evaluate(span)
    button = shown.page.locator("#job-1 [data-zoom=in]")
    button.focus()
    shown.page.keyboard.press("Enter")
    assert shown.page.evaluate(span) == pytest.approx(whole / 2)
    assert "Timeline from" in shown.page.locator("#told").inner_text()
    shown.page.locator("#job-1 [data-zoom=all]").click()
    assert shown.page.evaluate(span) == pytest.approx(whole)
    box = shown.page.locator("#timeline-1 .nsewdrag").bounding_box()
    shown.page.mouse.move(box["x"] + 100, box["y"] + 20)
    shown.page.mouse.down()
    shown.page.mouse.move(box["x"] + 300, box["y"] + 20, steps=5)
    shown.page.mouse.up()
    shown.page.wait_for_function(f"{span} < {whole / 2}")


def test_a_command_and_a_fix_are_copied(browser, report):
    with opened(browser, report.as_uri()) as found:
        found.page.set_default_timeout(180_000)
        found.page.wait_for_selector("html[data-ready]")
        found.page.evaluate(
            "document.addEventListener('copy', () => { window.copied = String(document.activeElement.value) })"
        )
        found.page.evaluate(
            "navigator.clipboard && (navigator.clipboard.writeText = async (text) => { window.copied = text })"
        )
        found.page.locator("#job-1 .command .copy").first.click()
        found.page.wait_for_function("() => window.copied")
        assert found.page.evaluate("window.copied") == f"launch run {' '.join(WORDS)}"
        assert found.page.locator("#told").inner_text() == "Copied to the clipboard"
        fix = found.page.locator("#job-2 .fix .copy").first
        if fix.count():
            fix.click()
            found.page.wait_for_function("() => window.copied.includes('parallel.') || window.copied.includes('=')")


@pytest.mark.sample(keep=2)
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (400, False), (400, True)])
def test_it_is_accessible_and_fits_the_window(browser, report, width, dark):
    with opened(browser, report.as_uri(), width=width, dark=dark) as found:
        found.page.set_default_timeout(180_000)
        found.page.wait_for_selector("html[data-ready]")
        found.page.evaluate(DRAW)
        assert found.axe() == []
        assert found.page.evaluate("document.documentElement.scrollWidth") <= width
        assert (found.problems, found.requests) == ([], [])
        background = found.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert background == ("rgb(18, 21, 27)" if dark else "rgb(244, 245, 247)")


def test_it_prints_in_light_colours(browser, report):
    with opened(browser, report.as_uri(), dark=True) as found:
        found.page.set_default_timeout(180_000)
        found.page.wait_for_selector("html[data-ready]")
        found.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        found.page.evaluate(DRAW)
        assert found.page.evaluate("document.getElementById('memory-1').layout.font.color") == "#1b1f27"
        assert len(found.page.pdf()) > 20_000


def test_figures_of_hostile_texts_are_data(report):
    text = report.read_text(encoding="utf-8")
    start = text.index('id="figures">') + len('id="figures">')
    assert set(json.loads(text[start : text.index("</script>", start)])) >= {"memory-1", "timeline-1", "devices-1"}
