"""The generated reference has everything that the program has; the site writes it anew at every build."""

import functools
import re

import pytest

from launcher.cli.dispatch import VERBS
from launcher.families.registry import FAMILIES, weights
from launcher.job import fields
from launcher.job.shipped import shipped
from launcher.mapping.backend import backend_names, get_backend
from tests.sampling import ROOT
from tools.docs.reference import arguments, conversions, examples, models, rules, verbs
from tools.docs.reference import fields as field_pages
from tools.docs.reference.rules import all_rules


@functools.cache
def text(module: str) -> str:
    """Return all pages that a module makes."""
    made = {"arguments": arguments, "fields": field_pages, "rules": rules, "verbs": verbs, "models": models}[module]
    return "\n".join(made.pages().values())


def headings(module: str) -> list[str]:
    return re.findall(r"^## `(.+)`$", text(module), re.MULTILINE)


@pytest.mark.slow
def test_every_field_has_one_heading_and_says_what_each_backend_makes_of_it() -> None:
    assert sorted(headings("fields")) == sorted(fields())
    page = field_pages.pages()["fields/parallel.md"]
    section = page.partition("## `parallel.tp`")[2].partition("\n## ")[0]
    assert "Tensor parallel size. int; devices; default `1`; at least 1." in section
    assert re.search(r"^- Megatron-SWIFT: .*`tensor_model_parallel_size`", section, re.MULTILINE)
    assert "- MindFormers: `parallel_config.model_parallel`" in section


def test_every_rule_has_one_heading_what_it_demands_and_its_source() -> None:
    found = all_rules()
    assert sorted(headings("rules")) == sorted(rule.id for rule in found)
    for rule in found:
        assert rule.doc.strip(), rule.id
        assert rule.source.strip(), rule.id


def test_every_verb_shows_its_help() -> None:
    assert headings("verbs") == ["launch", *(f"launch {name}" for name in VERBS)]
    assert text("verbs").count("usage: launch") >= len(VERBS)


@pytest.mark.parametrize("name", backend_names())
def test_every_argument_of_a_backend_is_listed_with_its_field(name: str) -> None:
    backend = get_backend(name)
    page = arguments.pages()[f"arguments/{name}.md"]
    listed = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    assert listed == [argument.name for argument in backend.catalogue(backend.default_version).arguments]
    assert page.count("../fields/") >= len(listed) // 10


@pytest.mark.slow
def test_every_family_and_preset_is_listed() -> None:
    for name in [*FAMILIES, *(path.stem for path in (shipped("conf") / "model").glob("*.yaml"))]:
        assert name in text("models"), name


def test_every_difference_from_an_upstream_example_has_its_reason() -> None:
    """`pages` refuses a difference without a reason."""
    assert examples.pages()["examples.md"].count("\n## ") == 3


@pytest.mark.slow
def test_tables_of_the_conversion_page_name_every_family_and_format() -> None:
    page = conversions.filled((ROOT / "docs" / "convert.md").read_text(encoding="utf-8"))
    assert "<!-- table" not in page
    assert not [family for family in weights() if f"| {family} |" not in page]
    assert not [title for title in conversions.formats() if f"| {title} |" not in page]
