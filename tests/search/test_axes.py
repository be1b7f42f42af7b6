"""Names of axes: the job's field offers those that the search has, which it cannot import."""

from launcher.job.planning import SEARCH_AXES
from launcher.search.space import FIELDS
from launcher.search.switches import SWITCHES


def test_every_axis_of_the_search_can_be_named_in_search_axes() -> None:
    """A switch that the field does not offer would never be tried, and nothing would say so."""
    assert (*FIELDS, "recompute", "stages", *(switch.axis for switch in SWITCHES)) == SEARCH_AXES
