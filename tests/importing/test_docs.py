"""The page about importing shows what its commands print today."""

import pytest

from tools.docs import import_page


@pytest.mark.slow
def test_page_is_current() -> None:
    text = import_page.page()
    assert import_page.main(["--check"]) == 0, "run python -m tools.docs.import_page"
    assert "(exit code 2)" not in text
    assert "Traceback" not in text
