"""Output of `launch import --to`: arguments passed through, arguments dropped, and the effect of that."""

import dataclasses
import sys
from collections.abc import Iterable

from launcher.cli.import_show import paths_of, write
from launcher.cli.notes import print_note, printable
from launcher.cli.options import print_json
from launcher.importing.accounts import DROPPED, PASSED_THROUGH, Account, counted
from launcher.importing.imported import Imported
from launcher.importing.job_file import job_yaml
from launcher.importing.notes import Note
from launcher.importing.port import Ported
from launcher.job import as_tree
from launcher.mapping.backend import Backend, get_backend
from launcher.mapping.launchers import variables_of
from launcher.mapping.native_only import EFFECTS, NOTHING
from launcher.port.dropped import DroppedArg
from launcher.port.port import DROPPED_RULE, shown_argument

_MOST_NAMES = 12
# Variables of GPUs, and their equivalents on NPUs.
_NPU_TWINS = {
    "CUDA_VISIBLE_DEVICES": "ASCEND_RT_VISIBLE_DEVICES",
    "PYTORCH_CUDA_ALLOC_CONF": "PYTORCH_NPU_ALLOC_CONF",
    "NCCL_SOCKET_IFNAME": "HCCL_SOCKET_IFNAME",
}


def show_port(pairs: list[tuple[Imported, Ported]], source: str, output: str | None, *, as_json: bool) -> int:
    """Write and report ported jobs; return the exit code: 1 if something prevents running them."""
    trees = []
    for path, (imported, ported) in zip(paths_of(output, len(pairs)), pairs, strict=True):
        if path is not None:
            write(path, ported_yaml(imported, ported, source))
        trees.append(_port_tree(imported, ported))
        if not as_json:
            _report(imported, ported, source)
            if path is not None:
                print(f"# written: {path}   next: launch dry-run +job={path}")
    if as_json:
        print_json(trees[0] if len(trees) == 1 else {"jobs": trees})
    return 0 if all(ported.ok for _, ported in pairs) else 1


def _report(imported: Imported, ported: Ported, source: str) -> None:
    from launcher.report.findings import print_findings

    backend, origin = get_backend(ported.job.backend.name or ""), get_backend(imported.backend)
    print(
        f"# {source}: {imported.program or 'arguments'}, {origin.title} {imported.version}"
        f" -> {backend.title} {ported.job.backend.version}"
    )
    for note in (*imported.problems, *imported.warnings, *ported.notes):
        print_note("note", note, sys.stdout)
    for account in ported.accounts:
        if account.status == PASSED_THROUGH:
            new = account.target_flags[0]
            print(printable(f"passed through  {shown_argument(account.flag, account.value)}: backend.args.{new}"))
    _print_later(ported.accounts)
    _print_dropped(ported.missing)
    for name in ported.variables:
        print(f"dropped  environment variable {name}: {backend.title} does not read it{_twin(name, backend)}")
    # Dropped arguments that do not change training have been reported above in more detail.
    shown = [each for each in ported.findings if each.rule != DROPPED_RULE or each.severity != "change"]
    print_findings(shown, ported.job, sys.stdout)
    count = dict(counted(ported.accounts))
    errors = sum(finding.severity == "error" for finding in ported.findings)
    print(
        f"# {len(ported.accounts)} arguments read: {count['translated']} translated, "
        f"{count[PASSED_THROUGH]} passed through, {count[DROPPED]} dropped, of these {count['training']} change "
        f"training; {errors} errors to resolve"
    )


def _print_later(accounts: Iterable[Account]) -> None:
    """Print arguments that are written later, grouped by the reason."""
    waiting: dict[str, list[str]] = {}
    for account in accounts:
        if account.note:
            waiting.setdefault(account.note, []).append(account.flag)
    for note, flags in waiting.items():
        print(printable(f"{_few(flags)}: {note}"))


def _print_dropped(missing: Iterable[DroppedArg]) -> None:
    """Print effect, reason and nearest substitute of dropped arguments; findings report those that change training."""
    groups: dict[tuple[object, ...], list[DroppedArg]] = {}
    for each in missing:
        if not each.changes_training and each.effect != NOTHING:
            groups.setdefault((each.does, each.effect, each.why, each.instead), []).append(each)
    for group in groups.values():
        one = group[0]
        flags = _few([shown_argument(each.flag, each.value) for each in group])
        print(printable(f"dropped  {flags}: {one.does} ({EFFECTS[one.effect]})"))
        print(printable(f"  {one.why}; instead: {one.instead}"))
    idle: dict[str, list[str]] = {}
    for each in missing:
        if each.effect == NOTHING:
            idle.setdefault(each.why, []).append(each.flag)
    for why, names in idle.items():
        print(printable(f"dropped, changes nothing  {_few(names)}: {why}"))


def _few(names: list[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more (--json lists all)" if more > 0 else "")


def _twin(name: str, backend: Backend) -> str:
    """Return a hint at the equivalent variable for the backend's devices, if the backend reads one."""
    there, variables = _NPU_TWINS.get(name), variables_of(backend.name)
    return f" (there: backend.env.{there}=…)" if there and variables is not None and there in variables else ""


def _port_tree(imported: Imported, ported: Ported) -> dict[str, object]:
    return {
        **imported.as_tree(),
        "backend": ported.job.backend.name,
        "version": ported.job.backend.version,
        "job": as_tree(ported.job),
        "from": {"backend": imported.backend, "version": imported.version},
        "args": [account.as_tree() for account in ported.accounts],
        "counts": dict(counted(ported.accounts)),
        "missing": [each.as_tree() for each in ported.missing],
        "findings": [finding.as_tree() for finding in ported.findings],
        "notes": [str(note) for note in ported.notes],
        "ok": ported.ok,
    }


def ported_yaml(imported: Imported, ported: Ported, source: str) -> str:
    """Return the text of the job file: dropped arguments are listed in notes, and as data under `imported`."""
    left_out = tuple(
        Note(message=f"{each.flag} is dropped: {each.does}; instead: {each.instead}")
        for each in ported.missing
        if each.effect != NOTHING
    )
    text = dataclasses.replace(
        imported,
        backend=ported.job.backend.name or "",
        version=ported.job.backend.version or "",
        job=ported.job,
        warnings=(*imported.warnings, *left_out),
        exact={},
    )
    origin = get_backend(imported.backend)
    is_newest = text.version == get_backend(text.backend).default_version
    return job_yaml(text, f"{source}, written for {origin.title} {imported.version}", with_version=not is_newest)
