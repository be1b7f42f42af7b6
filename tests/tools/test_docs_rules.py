"""The rule reference says what the rules say."""

from tools.docs import rules


def test_the_rule_page_is_current():
    assert rules.PAGE.read_text(encoding="utf-8") == rules.page(), "run python -m tools.docs.rules"


def test_every_rule_says_what_it_demands_and_where_it_comes_from():
    table = [line for line in rules.page().splitlines() if line.startswith("| `")]
    assert len(table) >= 250
    for line in table:
        _, says, _, source = [cell.strip() for cell in line.replace("\\|", "").strip("|").split("|")]
        assert says, line
        assert source, line
