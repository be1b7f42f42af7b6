"""Programs of a pipeline are either what GNU's do, or not known: a wrong text would be a wrong value of the job."""

import pytest

from launcher.importing.shell.filters import FILTERS

# name: words, what they get, what GNU's coreutils, sed, grep and mawk print; None: it is not known.
CASES: dict[str, tuple[tuple[str, ...], str, str | None]] = {
    "sed: the end of the last line begins no other": (("sed", "s/^/pre_/"), "a\n", "pre_a\n"),
    "sed: text at the end": (("sed", "s/$/.json/"), "a\nb\n", "a.json\nb.json\n"),
    "sed: of nothing": (("sed", "s/^/x/"), "", ""),
    "sed: without a last line's end": (("sed", "s/a/b/"), "a", "b"),
    "sed: new lines": (("sed", r"s/,/\n/g"), "0,1,2\n", "0\n1\n2\n"),
    "sed: tabs": (("sed", r"s/,/\t/g"), "0,1\n", "0\t1\n"),
    "sed: what fits": (("sed", "s/a/<&>/"), "ab\n", "<a>b\n"),
    "sed: an ampersand": (("sed", r"s/a/\&/"), "ab\n", "&b\n"),
    "sed: groups": (("sed", "-E", r"s/(.)(.)/\2\1/"), "ab\n", "ba\n"),
    "sed: case": (("sed", r"s/a/\U&/"), "ab\n", None),
    "sed: the second one": (("sed", "s/a/b/2"), "aa\n", None),
    "tr: deletes a class": (("tr", "-d", "[:space:]"), "my space \n", "myspace"),
    "tr: squeezes a class": (("tr", "-s", "[:blank:]"), "a  space\n", "a space\n"),
    "tr: deletes brackets": (("tr", "-d", "[]"), "node[1]\n", "node1\n"),
    "tr: deletes a range": (("tr", "-d", "a-z"), "ab-c\n", None),
    "tr: squeezes a range": (("tr", "-s", "a-z"), "aab\n", None),
    "tr: an unknown class": (("tr", "-d", "[:punct:]"), "a,b\n", None),
    "tr: signs": (("tr", ",", " "), "a,b\n", "a b\n"),
    "wc: bytes": (("wc", "-c"), "é\n", "3\n"),
    "wc: lines": (("wc", "-l"), "a\nb", "1\n"),
    "awk: the last but one": (("awk", "-F-", "{print $(NF-1)}"), "a-b-c\n", "b\n"),
    "awk: none but one": (("awk", "-F-", "{print $(NF-1)}"), "abc\n", None),
    "awk: single spaces": (("awk", "-F", "[ ]", "{print $2}"), "a  b\n", "\n"),
    "awk: white space": (("awk", "{print $2}"), "a  b\n", "b\n"),
    "awk: a bracket": (("awk", "-F[", "{print $1}"), "node[1]\n", "node\n"),
    "grep: prints nothing": (("grep", "-qi", "a"), "a\n", None),
    "grep: parts": (("grep", "-oE", "[0-9]+B"), "Qwen-72B-x\n", "72B\n"),
    "cut: a field": (("cut", "-d,", "-f2"), "a,b,c\n", "b\n"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_filter_prints_what_the_program_does(case: str) -> None:
    (name, *arguments), given, printed = CASES[case]
    assert FILTERS[name](arguments, given) == printed
