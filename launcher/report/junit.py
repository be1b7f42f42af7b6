"""Findings as JUnit XML, which GitLab, Jenkins and others show as test results.

A file is a test suite; each error is a failed test case, and a file without errors is one that passed. Warnings are its
output. Elements and attributes are those of Jenkins' junit-10.xsd.
"""

import re
from collections import Counter
from collections.abc import Sequence
from xml.etree import ElementTree

from launcher.report.checked import CheckedFile, text_of

# XML 1.0 has no way to write these characters, not even as a reference.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(files: Sequence[CheckedFile]) -> str:
    """Return the XML document."""
    root = ElementTree.Element("testsuites", name="launch check")
    totals = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    for file in files:
        suite, counts = _suite(file)
        root.append(suite)
        totals = {name: totals[name] + counts[name] for name in totals}
    root.attrib.update({name: str(totals[name]) for name in ("tests", "failures", "errors")})
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _suite(file: CheckedFile) -> tuple[ElementTree.Element, dict[str, int]]:
    failed = [each for each in file.found if each.finding.severity == "error"]
    counts = {"tests": len(failed) or 1, "failures": len(failed), "errors": 0, "skipped": int(bool(file.skipped))}
    attributes = {"name": _text(file.path), "time": "0", **{name: str(count) for name, count in counts.items()}}
    suite = ElementTree.Element("testsuite", attributes)
    if not failed:
        case = _case(suite, file, file.label or "not checked")
        if file.skipped:
            ElementTree.SubElement(case, "skipped", message=_text(file.skipped))
    names: Counter[str] = Counter()
    for each in failed:
        name = f"{each.finding.rule} {each.place}"
        names[name] += 1
        case = _case(suite, file, name if names[name] == 1 else f"{name} ({names[name]})")
        failure = ElementTree.SubElement(
            case, "failure", type=_text(each.finding.rule), message=_text(each.finding.message)
        )
        failure.text = _text(f"{each.place}\n{text_of(each.finding)}")
    rest = [each for each in file.found if each.finding.severity != "error"]
    if rest:
        lines = (f"{each.finding.severity} {each.finding.rule} {each.place}: {text_of(each.finding)}" for each in rest)
        ElementTree.SubElement(suite, "system-out").text = _text("\n".join(lines))
    return suite, counts


def _case(suite: ElementTree.Element, file: CheckedFile, name: str) -> ElementTree.Element:
    return ElementTree.SubElement(suite, "testcase", classname=_text(file.path), name=_text(name), time="0")


def _text(text: str) -> str:
    return _NOT_XML.sub(lambda found: f"\\x{ord(found.group()):02x}", text)
