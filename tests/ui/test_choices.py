"""What the planner's choosers offer."""

from launcher.ui.choices import versions


def test_versions_of_a_backend_are_offered_newest_first() -> None:
    offered = [each["value"] for each in versions("megatron_lm")]
    assert offered.index("0.19.0") < offered.index("0.16.1") < offered.index("0.12.1")
