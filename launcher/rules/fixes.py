"""Computes fixes: the nearest values with which the job passes all rules together."""

import dataclasses
import itertools
import math
import types
import typing
from collections.abc import Callable, Iterator, Mapping

import yaml

from launcher.job import FieldInfo, Job, Value, convert, field_at, fields, value_at
from launcher.job.finding import Finding, Fix
from launcher.rules.variants import Variants

Change = tuple[str, Value]

_MOST = 3
# Number of jobs tried for all errors of a job together, and the minimum for each of them.
_BUDGET, _SHARE = 600, 60
_TYPED = 2.0
_SIZES = tuple(sorted({*range(1, 17), *(2**power for power in range(5, 11)), 24, 48, 96}))
# No fix changes these: the sizes of the model, for example, are what the user wants to train.
_FIXED = ("model.", "hardware.", "data.", "cluster.master_addr", "optimizer.", "backend.")
_OPEN = ("optimizer.min_lr", "optimizer.precision_aware")
# The only model fields that a fix proposed by a finding may change.
_PROPOSED = ("model.pretrained", "model.path", "model.max_position_embeddings")
# Pass-through arguments: the only change that is certainly valid is to omit one.
_PASSED = "backend.args."
# Rules on the environment concern one variable; these values are tried.
_ENVIRONMENT = "backend.env."
_OF_ENVIRONMENT = ("1", "8")
# The length of training is the user's choice: an unset value has no nearest number.
_UNGUESSED = ("schedule.",)
# Usual values where nothing is set; for all other numbers, small ones.
_USUAL = {
    "batch.seq_length": (4096, 8192, 2048, 1024, 512),
    "batch.global_batch_size": (128, 256, 512),
    "checkpoint.save_interval": (500, 1000, 100),
    "evaluation.interval": (500, 1000, 100),
}
_SMALL = (1, 2, 4, 8)
# Longer sequences may be within a model's positions but do not fit a device, and are not proposed.
_LONGEST = 32768


def with_fixes(findings: list[Finding], variants: Callable[[], Variants]) -> list[Finding]:
    """Return the findings with fixes for the errors.

    A fix is one changed field, or two if no single change is enough, after which the job has no error at all; where no
    such change is found, one that removes this error and causes no other. Nearest values first, at most three. Fixes
    that a finding itself proposes are kept if they qualify; where no fix does, they are kept as hints.

    Args:
        variants: prepares the job to be checked with other values; called if there is an error.
    """
    errors = [finding for finding in findings if finding.severity == "error"]
    if not errors:
        return findings
    search = _Search(variants(), errors)
    return [
        dataclasses.replace(finding, fixes=search.fixes(finding)) if finding.severity == "error" else finding
        for finding in findings
    ]


class _Search:
    """Checks changed jobs against all rules, each change once."""

    def __init__(self, variants: Variants, errors: list[Finding]) -> None:
        self.job = variants.job
        self.variants = variants
        self.several = len({(error.rule, error.message) for error in errors}) > 1
        self.rules_before = {error.rule for error in errors}
        self.paths = list(dict.fromkeys(path for error in errors for path in error.fields if self._changeable(path)))
        self.share = max(_SHARE, _BUDGET // len(errors))
        self.budget = self.share
        self.known: dict[tuple[Change, ...], bool] = {}
        self.leaves: dict[Change, frozenset[str]] = {}
        self.left: dict[Change, frozenset[str]] = {}

    def fixes(self, finding: Finding) -> tuple[Fix, ...]:
        """Return up to three fixes of one error, nearest first."""
        self.budget = self.share
        proposed = self._proposed(finding)
        if proposed:
            return proposed
        changes = sorted(
            (
                (path, value)
                for path in finding.fields
                if self._changeable(path)
                for value in _candidates(self.job, path)
            ),
            key=lambda change: self._distance(*change),
        )
        alone: Iterator[tuple[Change, ...]] = ((change,) for change in changes)
        whole = list(itertools.islice(filter(self._passes, alone), _MOST))
        if len(whole) < _MOST and self.several and not self._only_missing(finding):
            others = [
                (path, value) for path in self.paths for value in itertools.islice(_candidates(self.job, path), 6)
            ]
            pairs = sorted(
                ((one, two) for one in changes[:8] for two in others if one[0] != two[0]),
                key=lambda pair: sum(self._distance(*change) for change in pair),
            )
            enough = {change for (change,) in whole}
            once = {frozenset(pair): pair for pair in reversed(pairs) if enough.isdisjoint(pair)}
            whole += itertools.islice(filter(self._passes, reversed(once.values())), _MOST - len(whole))
        if not whole:
            self.budget = self.share
            helps = self._supplies if self._only_missing(finding) else self._helps
            whole = [
                (change,) for change in itertools.islice((each for each in changes if helps(each, finding)), _MOST)
            ]
        found = tuple(Fix(overrides=tuple(_override(*change) for change in each)) for each in whole)
        return found or tuple(fix for fix in finding.fixes if self._is_open(fix))

    def _only_missing(self, finding: Finding) -> bool:
        """Return whether the error is an unset value: changes that fix other errors are not part of its fix."""
        return all(path in fields() and value_at(self.job, path) is None for path in finding.fields)

    def _proposed(self, finding: Finding) -> tuple[Fix, ...]:
        """Return the finding's own fixes that work: for the whole job, else for this finding."""
        known = {fix: changes_of(fix) for fix in finding.fixes if self._is_open(fix)}
        changes = {fix: tuple(found.items()) for fix, found in known.items() if found}
        whole = tuple(fix for fix, each in changes.items() if self._passes(each))
        return (whole or tuple(fix for fix, each in changes.items() if self._settles(each, finding)))[:_MOST]

    @staticmethod
    def _is_open(fix: Fix) -> bool:
        return all(not path.startswith("model.") or path in _PROPOSED for path in map(_path_of, fix.overrides))

    def _settles(self, changes: tuple[Change, ...], finding: Finding) -> bool:
        """Return whether the error is removed, except others of its rule on other fields, and no new rule fails."""
        self.budget -= 1
        errors = self.variants.errors(dict(changes)) if self.budget >= 0 else [finding]
        left = any(error.rule == finding.rule and error.fields == finding.fields for error in errors)
        return not left and {error.rule for error in errors} <= self.rules_before

    def _changeable(self, path: str) -> bool:
        if path.startswith(_PASSED):
            return path in passed_through(self.job)
        if path.startswith(_ENVIRONMENT):
            return True
        return path in fields() and (path in _OPEN or not path.startswith(_FIXED)) and path != "parallel.dp"

    def _passes(self, changes: tuple[Change, ...]) -> bool:
        if changes not in self.known:
            self.known[changes] = self._tried(changes)
        return self.known[changes]

    def _tried(self, changes: tuple[Change, ...]) -> bool:
        if self.variants.leaves_an_error(frozenset().union(*(self._leaves(change) for change in changes))):
            return False
        self.budget -= 1
        return self.budget >= 0 and self.variants.passes(dict(changes))

    def _leaves(self, change: Change) -> frozenset[str]:
        if change not in self.leaves:
            self.leaves[change] = self.variants.leaves(dict((change,)))
        return self.leaves[change]

    def _supplies(self, change: Change, finding: Finding) -> bool:
        return self._settles((change,), finding)

    def _helps(self, change: Change, finding: Finding) -> bool:
        if change not in self.left:
            self.budget -= 1
            errors = self.variants.errors(dict((change,))) if self.budget >= 0 else [finding]
            self.left[change] = frozenset(error.rule for error in errors)
        return finding.rule not in self.left[change] and self.left[change] <= self.rules_before

    def _distance(self, path: str, value: Value) -> float:
        # Values from the command line are what the user wants: other changes come first.
        wanted = _TYPED if path.startswith(_PASSED) or self.job.origin(path).kind == "override" else 0.0
        return wanted + self._change(path, value)

    def _change(self, path: str, value: Value) -> float:
        now = None if path.startswith((_PASSED, _ENVIRONMENT)) else value_at(self.job, path)
        if isinstance(now, bool) or isinstance(value, bool) or not isinstance(value, (int, float)) or not now:
            return 0.5 if value is not None else 1.0
        return abs(math.log2(value / now)) + (0.01 if value > now else 0) if value > 0 else 8.0


def changes_of(fix: Fix) -> dict[str, Value] | None:
    """Return the values that a fix sets, by path; None where it sets anything that is not a value of a job."""
    found: dict[str, Value] = {}
    for override in fix.overrides:
        path, _, text = override.partition("=")
        try:
            if path.startswith(_PASSED):
                found[path] = yaml.safe_load(text)
            elif path.startswith(_ENVIRONMENT):
                found[path] = text
            elif path in fields():
                # YAML parses 1e-06 as text, Hydra as a number.
                value = float(text) if path in _OPEN else yaml.safe_load(text)
                found[path] = convert(value, field_at(path).type, field_at(path).meta)
            else:
                return None
        except (ValueError, yaml.YAMLError):
            return None
    return found


def passed_through(job: Job) -> set[str]:
    """Return the paths of the job's pass-through arguments; sections of a file have a path for each key."""
    return set(_leaves("backend.args", job.backend.args))


def _leaves(prefix: str, tree: Mapping[str, Value]) -> Iterator[str]:
    for name, value in tree.items():
        yield f"{prefix}.{name}"
        if isinstance(value, Mapping):
            yield from _leaves(f"{prefix}.{name}", value)


def _path_of(override: str) -> str:
    return override.partition("=")[0]


def _candidates(job: Job, path: str) -> Iterator[Value]:
    if path.startswith(_PASSED):
        yield None
        return
    if path.startswith(_ENVIRONMENT):
        yield from _OF_ENVIRONMENT
        return
    info, now = fields()[path], value_at(job, path)
    kinds = typing.get_args(info.type) if isinstance(info.type, types.UnionType) else (info.type,)
    values: list[Value] = []
    if bool in kinds:
        values = [not now]
    elif int in kinds:
        values = list(_numbers(job, info, now))
    elif path == "optimizer.min_lr":
        values = [float(f"{0.1 * job.optimizer.lr:.6g}")] if job.optimizer.lr else []
    elif str in kinds:
        values = list(info.meta.choices)
    if type(None) in kinds and now is not True:
        # Only false is proposed as "off", not null as well.
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
    elif info.path == "batch.seq_length":
        yield from _lengths(job)
    elif info.path == "batch.global_batch_size":
        step = job.batch.micro_batch_size * dp
        yield from dict.fromkeys(step * -(-size // step) for size in _USUAL[info.path])
    elif not info.path.startswith(_UNGUESSED):
        yield from _USUAL.get(info.path, _SMALL)


def _lengths(job: Job) -> Iterator[int]:
    """Yield usual lengths within the model's positions, each one divisible by what splits a sequence."""
    longest = job.model.max_position_embeddings or _LONGEST
    step = 2 * job.parallel.cp * job.parallel.tp
    wanted = sorted({min(size, longest) for size in (*_USUAL["batch.seq_length"], _LONGEST)})
    usual = [size for size in wanted if size >= 4096] or wanted[::-1]
    yield from dict.fromkeys(size // step * step for size in usual if size >= step)


def _around(now: int, step: int) -> tuple[int, int]:
    return now // step, now // step + 1


def _override(path: str, value: Value) -> str:
    if value is None:
        return f"{path}=null"
    if value == ():
        return f"{path}=[]"
    return f"{path}={str(value).lower() if isinstance(value, bool) else value}"
