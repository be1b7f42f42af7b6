"""The documentation site in a browser, from files: search finds the page of each everyday task."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from tests.browser.browsing import opened
from tests.conftest import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow

# What a reader types in English and Chinese, and the page that answers it.
TASKS = {
    "start/data": ("own dataset", "自己的数据集"),
    "start/model": ("model not listed", "自己的模型"),
    "start/lora": ("lora", "LoRA 微调"),
    "start/resume": ("resume checkpoint", "断点续训"),
    "start/wandb": ("wandb", "wandb"),
    "start/sft": ("supervised fine-tuning", "监督微调"),
    "start/slurm": ("slurm", "slurm"),
    "start/kubernetes": ("kubernetes", "kubernetes"),
    "start/ascend": ("ascend npu", "昇腾"),
    "guides/attention": ("attention backend", "注意力后端"),
    "guides/recipe": ("write a recipe", "编写配方"),
    "guides/long_context": ("128K context", "长上下文"),
    "guides/plugin": ("plug-in", "插件"),
    "guides/why_flag": ("why is this flag there", "参数 来源"),
    "guides/compare": ("compare two scripts", "比较两个脚本"),
    "guides/will_it_fit": ("estimate memory", "估算显存"),
    "guides/search_layout": ("search layout", "搜索并行策略"),
    "guides/sweep": ("slurm array sweep", "参数扫描"),
    "guides/runs": ("stop a run", "停止 清理"),
    "guides/convert_layout": ("convert another layout", "转换 并行策略"),
    "guides/convert_deepseek": ("convert deepseek", "deepseek 权重转换"),
    "guides/tokenizer": ("offline tokenizer", "离线分词器"),
    "guides/fork": ("fork script", "派生仓库"),
    "guides/rehearse_cluster": ("rehearse 1,000 devices", "演练千卡"),
    "guides/port_to_ascend": ("port gpu script ascend", "迁移到昇腾"),
    "guides/python": ("python api", "在 Python 中使用"),
    "report": ("html report", "报告"),
    "ui": ("web planner", "网页规划器"),
    "pull_requests": ("pull requests pre-commit", "合并请求"),
    "reference/fields/parallel": ("parallel.tp", "parallel.tp"),
    "reference/rules/every_backend": ("PAR-WORLD", "PAR-WORLD"),
}
# What readers also type, and a page that answers it: English, Chinese; "" is not asked.
OTHERS = {
    "start/data": ("parquet", "parquet"),
    "start/data.md": ("sharegpt", "sharegpt"),
    "guides/rehearse_cluster": ("1000 GPUs", "1000 GPUs"),
    "start/resume": ("resume training", "恢复训练"),
    "guides/will_it_fit": ("OOM", "显存不够"),
    "guides/runs": ("NaN", "NaN"),
    "guides/runs.md": ("hang", "训练卡住"),
    "guides/runs.md#loss": ("loss NaN", "损失 NaN"),
    "guides/will_it_fit.md": ("out of memory", "OOM"),
    "guides/convert_layout": ("convert weights", "权重转换"),
    "start/slurm": ("multi-node", "多机"),
    "start/kubernetes": ("docker image", "容器镜像"),
    "guides/runs.md#plain": ("loss", "loss"),
    "guides/plugin": ("plugin", "自定义后端"),
    "guides/plugin.md": ("custom backend", "plugin"),
    "guides/fork": ("custom arguments", "二次开发"),
    "start/model": ("custom model", "自定义模型"),
    "start/model.md": ("unlisted model", "未列出的模型"),
    "guides/rehearse_cluster.md": ("thousand GPUs", "1000 卡"),
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site: the one that LAUNCH_SITE names, or one built now."""
    if built := os.environ.get("LAUNCH_SITE"):
        return Path(built)
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "tools.docs.site", "-o", str(out)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module", params=["en", "zh"])
def searching(request: pytest.FixtureRequest, browser: "Browser", site: Path) -> "Iterator[tuple[str, Page]]":
    """The search page of a language."""
    with opened(browser, (site / request.param / "search.html").as_uri()) as found:
        yield request.param, found.page
        assert found.problems == []


@pytest.mark.sample(keep=20)
@pytest.mark.parametrize("task", TASKS)
def test_search_finds_the_page_of_a_task(searching: "tuple[str, Page]", task: str) -> None:
    language, page = searching
    found_by(page, language, TASKS[task], task)


@pytest.mark.parametrize("task", OTHERS)
def test_search_finds_a_page_by_other_words(searching: "tuple[str, Page]", task: str) -> None:
    language, page = searching
    found_by(page, language, OTHERS[task], task.partition(".md")[0])


def found_by(page: "Page", language: str, queries: tuple[str, str], task: str) -> None:
    """Assert that a page is among the first three that a query finds."""
    query = queries[language == "zh"]
    page.goto(f"{page.url.partition('?')[0]}?q={quote(query)}")
    page.wait_for_selector("#search-results ul.search li:nth-child(3) a, #search-results .search-summary:not(:empty)")
    links = page.eval_on_selector_all("#search-results ul.search li > a", "all => all.map(a => a.getAttribute('href'))")
    prefix = "docs/zh/" if language == "zh" and not task.startswith("reference") else "docs/"
    assert any(f"{prefix}{task}.html" in link for link in links[:3]), (query, links[:8])


@pytest.mark.parametrize("width", [390, 1100, 1280, 1440])
@pytest.mark.parametrize("name", ["en/docs/index", "en/docs/search", "zh/docs/zh/start/data", "zh/docs/zh/agreement"])
def test_a_page_is_not_wider_than_the_window(browser: "Browser", site: Path, name: str, width: int) -> None:
    with opened(browser, (site / f"{name}.html").as_uri(), width=width) as found:
        wider = "document.scrollingElement.scrollWidth - document.documentElement.clientWidth"
        assert found.page.evaluate(wider) == 0


@pytest.mark.parametrize("start", ["index.html", "en/docs/index.html", "zh/docs/zh/index.html"])
def test_the_site_opens_from_files_without_network(browser: "Browser", site: Path, start: str) -> None:
    with opened(browser, (site / start).as_uri()) as found:
        assert "Launch" in found.page.title()
        assert [address for address in found.requests if not address.startswith("file:")] == []
        assert [problem for problem in found.problems if "exception" in problem] == []
        assert found.axe() == []


def test_the_languages_lead_to_each_other(browser: "Browser", site: Path) -> None:
    with opened(browser, (site / "en/docs/start/lora.html").as_uri()) as found:
        found.page.get_by_role("link", name="中文").first.click()
        found.page.wait_for_url("**/zh/docs/zh/start/lora.html")
        found.page.get_by_role("link", name="English").first.click()
        found.page.wait_for_url("**/en/docs/start/lora.html")
