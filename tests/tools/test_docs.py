"""Generated pages say what the tables say."""

from tools.docs import mapping


def test_the_mapping_page_is_current():
    assert mapping.PAGE.read_text(encoding="utf-8") == mapping.page(), "run python -m tools.docs.mapping"
