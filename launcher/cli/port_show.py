"""Output of `launch import --to`: arguments passed through, arguments dropped, and the effect of that."""

import dataclasses
import sys
from collections.abc import Iterable, Iterator

from launcher.cli.import_show import paths_of, write, written
from launcher.cli.notes import print_note, printable
from launcher.cli.options import print_json
from launcher.importing.accounts import DROPPED, PASSED_THROUGH, TRANSLATED, Account
from launcher.importing.accounts import counted as counted_accounts
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
from launcher.report.findings import headline, print_findings
from launcher.report.text_page import Page, page_of
from launcher.terminal import counted

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
            _report(imported, ported, source, path)
    if as_json:
        print_json(trees[0] if len(trees) == 1 else {"jobs": trees})
    return 0 if all(ported.ok for _, ported in pairs) else 1


def _report(imported: Imported, ported: Ported, source: str, output: str | None) -> None:
    page = page_of(sys.stdout)
    for line in _head(imported, ported, source, page):
        print(line)
    if output is not None:
        print("\n".join(written(output, page)))
    # Dropped arguments that do not change training are reported below in more detail.
    shown = [each for each in ported.findings if each.rule != DROPPED_RULE or each.severity != "change"]
    print_findings(shown, ported.job, sys.stdout)
    for note in (*imported.problems, *imported.warnings, *ported.notes):
        print_note("note", note, sys.stdout)
    for line in (*_passed(ported.accounts), *_later(ported.accounts), *_dropped(ported.missing), *_variables(ported)):
        print("\n".join(page.wrapped([printable(line)])))


def _head(imported: Imported, ported: Ported, source: str, page: Page) -> Iterator[str]:
    backend, origin = get_backend(ported.job.backend.name or ""), get_backend(imported.backend)
    stacks = f"{origin.title} {imported.version} -> {backend.title} {ported.job.backend.version}"
    program = printable(imported.program or "arguments")
    yield from headline(printable(source), f": {program}, {stacks}", ported.findings, page)
    count = dict(counted_accounts(ported.accounts))
    counts = [f"{count[TRANSLATED]} translated"]
    counts += [f"{count[PASSED_THROUGH]} passed through"] if count[PASSED_THROUGH] else []
    verb = "changes" if count["training"] == 1 else "change"
    changing = f" ({count['training']} of them {verb} training)" if count["training"] else ""
    counts += [f"{count[DROPPED]} dropped{changing}"] if count[DROPPED] else []
    yield from page.join(counts, f"{counted(len(ported.accounts), 'argument')} read: ", "  ", sign=", ")


def _passed(accounts: Iterable[Account]) -> Iterator[str]:
    for account in accounts:
        if account.status == PASSED_THROUGH:
            new = account.target_flags[0]
            yield f"passed through  {shown_argument(account.flag, account.value)}: backend.args.{new}"


def _later(accounts: Iterable[Account]) -> Iterator[str]:
    """Yield arguments that are written later, grouped by the reason."""
    waiting: dict[str, list[str]] = {}
    for account in accounts:
        if account.note:
            waiting.setdefault(account.note, []).append(account.flag)
    for note, flags in waiting.items():
        yield f"{_few(flags)}: {note}"


def _dropped(missing: Iterable[DroppedArg]) -> Iterator[str]:
    """Yield effect, reason and nearest substitute of dropped arguments; findings report those that change training."""
    groups: dict[tuple[object, ...], list[DroppedArg]] = {}
    for each in missing:
        if not each.changes_training and each.effect != NOTHING:
            groups.setdefault((each.does, each.effect, each.why, each.instead), []).append(each)
    for group in groups.values():
        one = group[0]
        flags = _few([shown_argument(each.flag, each.value) for each in group])
        yield f"dropped  {flags}: {one.does} ({EFFECTS[one.effect]})"
        yield f"  {one.why}; instead: {one.instead}"
    idle: dict[str, list[str]] = {}
    for each in missing:
        if each.effect == NOTHING:
            idle.setdefault(each.why, []).append(each.flag)
    for why, names in idle.items():
        yield f"dropped, changes nothing  {_few(names)}: {why}"


def _variables(ported: Ported) -> Iterator[str]:
    backend = get_backend(ported.job.backend.name or "")
    for name in ported.variables:
        yield f"dropped  environment variable {name}: {backend.title} does not read it{_twin(name, backend)}"


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
        "counts": dict(counted_accounts(ported.accounts)),
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
    is_default = text.version == get_backend(text.backend).default_version
    return job_yaml(text, f"{source}, written for {origin.title} {imported.version}", with_version=not is_default)
