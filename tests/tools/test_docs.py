"""Generated pages say what the tables say."""

import pytest

from tools.docs import convert_page, examples, mapping


def test_the_mapping_page_is_current():
    assert mapping.PAGE.read_text(encoding="utf-8") == mapping.page(), "run python -m tools.docs.mapping"


def test_the_examples_page_is_current_and_every_difference_has_a_reason():
    assert examples.PAGE.read_text(encoding="utf-8") == examples.page(), "run python -m tools.docs.examples"


@pytest.mark.slow
def test_the_conversion_page_is_current():
    assert convert_page.PAGE.read_text(encoding="utf-8") == convert_page.page(), "run python -m tools.docs.convert_page"
