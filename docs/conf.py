"""Sphinx: the site in English, or with the tag zh in Chinese (`python -m tools.docs.site` calls it).

Sphinx with MyST and not MkDocs: every broken link and unlisted page is an error (-W), search works from files without a
server, and its language is a class that can be replaced (tools/docs/site/chinese.py).
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.docs.site.chinese import ChinesePairs  # noqa: E402
from tools.docs.site.console import Console  # noqa: E402
from tools.docs.site.links import readable, rewritten  # noqa: E402

CHINESE = tags.has("zh")  # type: ignore[name-defined]  # noqa: F821

project = "Launch"
extensions = ["myst_parser"]
language = "zh_CN" if CHINESE else "en"
root_doc = "docs/zh/index" if CHINESE else "docs/index"
# The Chinese site has the English pages that have no translation: the reference and the records of measurements.
_ENGLISH = ["docs/index.md", "docs/start", "docs/guides", "docs/accuracy.md", "README.md"]
_ENGLISH += ["docs/report.md", "docs/ui.md", "docs/pull_requests.md", "docs/running.md", "docs/import.md"]
_ENGLISH += ["docs/convert.md", "docs/estimate.md", "docs/search.md", "docs/rehearsal.md", "docs/parity.md"]
_ENGLISH += ["docs/agreement.md", "docs/exhaustive.md"]
exclude_patterns = ["docs/conf.py", *(_ENGLISH if CHINESE else ["docs/zh", "README.zh-CN.md"])]
myst_heading_anchors = 4
html_theme = "furo"
html_title = "Launch"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["wide.css"]
html_js_files = ["from_files.js"]
html_search_scorer = str(ROOT / "docs" / "_static" / "scorer.js")
templates_path = ["_templates"]
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/language.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}


from sphinx.addnodes import toctree as _TOCTREE  # noqa: E402


def setup(app):  # type: ignore[no-untyped-def]
    """Put in the search language, the links, and the address of the page in the other language."""
    from sphinx.search import languages

    languages["zh"] = languages["zh_CN"] = ChinesePairs
    app.add_lexer("console", Console)
    app.connect("source-read", _links)
    app.connect("html-page-context", _other_language)
    app.connect("html-page-context", _accessible_captions, priority=900)
    app.connect("env-updated", _without_headings_of_reference)


def _links(app, docname, source):  # type: ignore[no-untyped-def]
    source[0] = rewritten(readable(source[0]), f"{docname}.md", root=ROOT, sources=Path(app.srcdir), chinese=CHINESE)


def _accessible_captions(app, pagename, templatename, context, doctree):  # type: ignore[no-untyped-def]
    """Give the captions of the navigation the level that a heading needs; Sphinx leaves it out."""
    tree = context.get("furo_navigation_tree", "")
    context["furo_navigation_tree"] = tree.replace('role="heading"', 'role="heading" aria-level="2"')


def _other_language(app, pagename, templatename, context, doctree):  # type: ignore[no-untyped-def]
    here, there = ("docs/zh/", "docs/") if CHINESE else ("docs/", "docs/zh/")
    other = pagename.replace(here, there, 1) if pagename.startswith(here) else ""
    if pagename in ("README", "README.zh-CN"):
        other = "README" if CHINESE else "README.zh-CN"
    exists = other and (Path(app.srcdir) / f"{other}.md").is_file()
    page = other if exists else f"{there}index"
    context["other_language"] = "../" * (pagename.count("/") + 1) + f"{'en' if CHINESE else 'zh'}/{page}.html"
    context["other_language_name"] = "English" if CHINESE else "中文"


def _without_headings_of_reference(app, env):  # type: ignore[no-untyped-def]
    """Keep the thousand headings of the reference out of the navigation: copying them is most of a build's time."""
    for name in env.found_docs:
        if name.startswith("docs/reference/"):
            for item in env.tocs[name].children:
                for nested in item.children[1:]:
                    if nested.tagname == "bullet_list" and not list(nested.findall(_TOCTREE)):
                        item.remove(nested)
