"""Findings on a screen: what they say together, and how much of it."""

import io
import re

from launcher.job.finding import Finding, Fix
from launcher.report.findings import format_finding, print_findings


def _printed(findings: list[Finding]) -> str:
    out = io.StringIO()
    print_findings(findings, None, out)
    return out.getvalue()


def _finding(rule: str, severity: str, message: str, *fields: str, fixes: tuple[Fix, ...] = ()) -> Finding:
    return Finding(rule=rule, severity=severity, message=message, fields=fields, fixes=fixes, source="test")


def test_the_same_of_several_fields_is_one_paragraph() -> None:
    text = _printed(
        [
            _finding("MAP-UNREAD", "warning", "it is ignored", "model.rope_theta"),
            _finding("MAP-UNREAD", "warning", "it is ignored", "model.partial_rotary_factor"),
            _finding("MAP-UNREAD", "warning", "another reason", "model.rope_scaling"),
        ]
    )
    assert text.count("it is ignored") == 1
    assert "MAP-UNREAD  model.rope_theta, model.partial_rotary_factor\n" in text
    assert "another reason" in text


def test_errors_with_other_offers_stay_apart() -> None:
    errors = [_finding("A", "error", "the same", name, fixes=(Fix(overrides=(f"{name}=1",)),)) for name in ("x", "y")]
    assert _printed(errors).count("the same") == 2


def test_warnings_beyond_a_screen_are_counted() -> None:
    errors = [_finding(f"E-{number}", "error", f"error {number}", "x") for number in range(13)]
    rest = [_finding(f"W-{number}", "warning", f"warning {number}", "x") for number in range(2)]
    text = _printed([*errors, *rest, _finding("C-0", "change", "changed", "x")])
    assert all(f"error {number}  [test]" in text for number in range(13))
    assert "warning 0" not in text
    assert text.endswith("… and 2 warnings (W-0, W-1), 1 change (C-0): --json has all\n")


def test_a_very_long_value_is_shortened_with_its_length_and_json_has_all() -> None:
    for value in ("a" * 5000, "ab " * 2000):
        error = Finding(rule="X", severity="error", message=f"name {value!r} is too long", fields=("name",))
        said = format_finding(error)
        assert len(said) < 900
        assert re.search(r"… \([56],0\d\d characters\)", said)
        assert value in error.as_tree()["message"]


def test_errors_beyond_a_screen_are_counted_with_their_rules() -> None:
    errors = [Finding(rule=f"X-{at}", severity="error", message="x", fields=(f"batch.{at}",)) for at in range(30)]
    warning = Finding(rule="Y", severity="warning", message="y")
    lines = _printed([*errors, warning]).splitlines()
    assert len(lines) <= 41
    assert lines[-1].startswith("… and 17 errors (X-13, ")
    assert lines[-1].endswith("1 warning (Y): --json has all")
