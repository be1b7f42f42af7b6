"""The tables of faults in docs/running.md: one executor is measured, the others' lines stay."""

from tools.bench.faults.case import Case, Result
from tools.bench.faults.cases import CASES
from tools.bench.faults.table import BEGIN, END, FAULTS, PAGE, tables


def page() -> list[str]:
    return PAGE.read_text(encoding="utf-8").partition(f"{BEGIN}\n")[2].partition(END)[0].splitlines()


def own(lines: list[str], executor: str) -> list[str]:
    return [line for line in lines if line.startswith(f"| {executor} |")]


def test_what_was_not_measured_stays_as_it_is():
    before = page()
    assert tables(CASES, {}, before) == before
    results = {case.key: Result(state="done", code=0, saved=10, resumed=True, seconds=6) for case in _of("kubernetes")}
    after = tables(CASES, results, before)
    for executor in ("local", "ssh", "slurm"):
        assert own(after, executor) == own(before, executor)
    made, *rows = own(after, "kubernetes")
    count = len(results)
    assert made.endswith(f"| {count} of {count} | 0 | 0 | {count} | {round(count / 10)} |")
    assert len(rows) == count
    assert rows[0].endswith("| done |  | 0 | 0 | 10, resumed |  |")


def test_every_case_has_a_line():
    lines = page()
    assert len(lines[lines.index(FAULTS) + 2 :]) == len(CASES)


def _of(executor: str) -> list[Case]:
    return [case for case in CASES if case.executor == executor]
