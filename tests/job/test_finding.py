"""Findings as JSON, and back: the planner and Python take the fixes from what a verb prints."""

import json

from hypothesis import given
from hypothesis import strategies as st

from launcher.job.finding import SEVERITIES, Finding, Fix

words = st.text(st.characters(codec="utf-8", exclude_characters="="), max_size=12)
paths = st.sampled_from(["parallel.tp", "logging.wandb_name", "+recipe", "model.path", "backend.args.moe-layer-freq"])
overrides = st.builds("{}={}".format, paths, words)
fixes = st.builds(Fix, overrides=st.lists(overrides, min_size=1, max_size=3).map(tuple), affects_training=st.booleans())
texts = st.lists(st.text(max_size=8), max_size=2).map(tuple)
findings = st.builds(
    Finding,
    rule=st.text(max_size=8),
    severity=st.sampled_from(SEVERITIES),
    message=st.text(max_size=8),
    fields=texts,
    flags=texts,
    fixes=st.lists(fixes, max_size=3, unique_by=str).map(tuple),
    asks=texts,
    source=st.text(max_size=8),
)


@given(findings)
def test_a_finding_comes_back_from_its_json(finding: Finding) -> None:
    assert Finding.from_tree(json.loads(json.dumps(finding.as_tree()))) == finding
