"""Fixes are computed: the nearest values with which the job passes all rules together."""

import dataclasses
import itertools
import math
import types
import typing
from collections.abc import Callable, Iterator

from launcher.job import FieldInfo, Job, Value, fields, value_at, with_values
from launcher.rules.finding import Finding, Fix

Judge = Callable[[Job], list[Finding]]
Change = tuple[str, Value]

_MOST = 3
_BUDGET = 600
_TYPED = 2.0
_SIZES = tuple(sorted({*range(1, 17), *(2**power for power in range(5, 11)), 24, 48, 96}))
# Sizes of the model are what the user wants to train: no fix changes them.
_FIXED = ("model.", "hardware.", "data.", "cluster.master_addr", "optimizer.", "backend.")


def with_fixes(findings: list[Finding], job: Job, judge: Judge) -> list[Finding]:
    """Return the findings with fixes added to the errors that have none.

    A fix is one changed field, or two if no single change is enough, after which the job has no error at all; where no
    such change is found, one that removes this error and causes no other. Nearest values first, at most three.
    """
    errors = [finding for finding in findings if finding.severity == "error"]
    if not errors:
        return findings
    search = _Search(job, judge, errors)
    return [
        dataclasses.replace(finding, fixes=search.fixes(finding))
        if finding.severity == "error" and not finding.fixes
        else finding
        for finding in findings
    ]


class _Search:
    """Tries changed jobs against all rules, each change once."""

    def __init__(self, job: Job, judge: Judge, errors: list[Finding]) -> None:
        self.job = job
        self.judge = judge
        self.before = {(error.rule, error.message) for error in errors}
        self.rules_before = {error.rule for error in errors}
        self.paths = list(dict.fromkeys(path for error in errors for path in error.fields if _changeable(path)))
        self.budget = _BUDGET
        self.known: dict[tuple[tuple[str, Value], ...], list[Finding]] = {}

    def fixes(self, finding: Finding) -> tuple[Fix, ...]:
        """Return up to three fixes of one error, nearest first."""
        changes = sorted(
            ((path, value) for path in finding.fields if _changeable(path) for value in _candidates(self.job, path)),
            key=lambda change: self._distance(*change),
        )
        whole: list[tuple[Change, ...]] = [(change,) for change in changes if not self._errors((change,))]
        if len(whole) < _MOST and len(self.before) > 1:
            others = [
                (path, value) for path in self.paths for value in itertools.islice(_candidates(self.job, path), 6)
            ]
            pairs = sorted(
                ((one, two) for one in changes[:8] for two in others if one[0] != two[0]),
                key=lambda pair: sum(self._distance(*change) for change in pair),
            )
            whole += [pair for pair in pairs if not self._errors(pair)]
        whole = list({frozenset(each): each for each in whole}.values())
        found = whole or [(change,) for change in changes if self._helps(change, finding)]
        return tuple(Fix(overrides=tuple(_override(*change) for change in each)) for each in found[:_MOST])

    def _errors(self, changes: tuple[tuple[str, Value], ...]) -> list[Finding]:
        if changes not in self.known:
            if self.budget <= 0:
                return [Finding(rule="", severity="error", message="not tried")]
            self.budget -= 1
            judged = self.judge(with_values(self.job, dict(changes)))
            self.known[changes] = [finding for finding in judged if finding.severity == "error"]
        return self.known[changes]

    def _helps(self, change: tuple[str, Value], finding: Finding) -> bool:
        after = self._errors((change,))
        rules = {error.rule for error in after}
        return finding.rule not in rules and rules <= self.rules_before

    def _distance(self, path: str, value: Value) -> float:
        # What was typed on the command line is what the user wants: other changes come first.
        wanted = _TYPED if self.job.origin(path).kind == "override" else 0.0
        return wanted + self._change(path, value)

    def _change(self, path: str, value: Value) -> float:
        now = value_at(self.job, path)
        if isinstance(now, bool) or isinstance(value, bool) or not isinstance(value, (int, float)) or not now:
            return 0.5 if value is not None else 1.0
        return abs(math.log2(value / now)) + (0.01 if value > now else 0) if value > 0 else 8.0


def _changeable(path: str) -> bool:
    return path in fields() and not path.startswith(_FIXED) and path != "parallel.dp"


def _candidates(job: Job, path: str) -> Iterator[Value]:
    info, now = fields()[path], value_at(job, path)
    kinds = typing.get_args(info.type) if isinstance(info.type, types.UnionType) else (info.type,)
    values: list[Value] = []
    if bool in kinds:
        values = [not now]
    elif int in kinds:
        values = list(_numbers(job, info, now))
    elif str in kinds:
        values = list(info.meta.choices)
    if type(None) in kinds and now is not True:
        # Off is said once: false, not null besides.
        values.append(None)
    elif any(typing.get_origin(kind) is tuple for kind in kinds):
        values.append(())
    yield from (value for value in values if value != now)


def _numbers(job: Job, info: FieldInfo, now: Value) -> Iterator[int]:
    dp = job.parallel.dp or 1
    if info.path == "batch.global_batch_size" and isinstance(now, int):
        step = job.batch.micro_batch_size * dp
        yield from (step * count for count in _around(now, step) if count)
    elif info.path == "batch.seq_length" and isinstance(now, int):
        step = 2 * job.parallel.cp * job.parallel.tp
        yield from (step * count for count in _around(now, step) if count)
        if job.model.max_position_embeddings is not None:
            yield job.model.max_position_embeddings
    elif isinstance(now, int):
        sizes = {size for size in _SIZES if size <= max(64, 8 * now)} | {now - 1, now + 1}
        low = int(info.meta.minimum or 0)
        yield from sorted(
            (size for size in sizes if size >= low), key=lambda size: abs(math.log2(max(size, 1) / max(now, 1)))
        )
    else:
        yield from (1, 2, 4, 8)


def _around(now: int, step: int) -> tuple[int, int]:
    return now // step, now // step + 1


def _override(path: str, value: Value) -> str:
    if value is None:
        return f"{path}=null"
    if value == ():
        return f"{path}=[]"
    return f"{path}={str(value).lower() if isinstance(value, bool) else value}"
