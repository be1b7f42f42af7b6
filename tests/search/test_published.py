"""Published layouts are jobs that Megatron-LM accepts and points of the space that `launch search` covers."""

import pytest

from launcher.job import with_values
from launcher.search.begin import begin, unasked
from launcher.search.compare import errors_of
from tools.bench.search_published import CASES, in_space, published


@pytest.mark.parametrize("name", CASES)
def test_a_published_layout_is_legal_and_in_the_space(name: str) -> None:
    job = published(name).job
    assert errors_of(with_values(job, unasked(job))) == []
    assert in_space(begin(job), job)
