"""One command that makes the catalogue of a backend's version and registers the version.

    python -m tools.catalogue megatron    --version 4.6.0
    python -m tools.catalogue megatron    --version 3.5-dev --source ~/src/ms-swift --revision 54e9c505
    python -m tools.catalogue megatron_lm --version 0.16.1 --source ~/src/Megatron-LM
    python -m tools.catalogue mindspeed   --version master --source ~/src/MindSpeed-LLM --mindspeed ~/src/MindSpeed \
        --megatron-lm ~/src/Megatron-LM
    python -m tools.catalogue mindformers --version 2.1.0  --source ~/wheels/mindformers-2.1.0 --mindspore ~/wheels/ms

Without --source, the wheel on PyPI or a shallow clone of the tag is fetched into $LAUNCH_SOURCES
(~/.cache/launch-sources). Checkouts must be at the wanted revision. megatron_lm and mindspeed build the project's real
parser and need torch on CPU in this interpreter; the others only read source. The catalogue goes to
backends/BACKEND/catalogue/VERSION.json.

Then it prints what is new, gone, renamed, has another default or is declared otherwise, against the versions before and
after, with the rows and rules that each touches, and enters the version in backends/BACKEND/versions.json. It refuses
(exit code 1) while something is unsettled, and lists that: a field without a row or a reason, a row of an argument that
the version lacks, a row whose bounds leave out an argument that it has, an argument without a description, an argument
that is gone without an entry in renames.json, and a rule or another fact on which the neighbours differ and whose
bounds are not what the source says (its lines are looked up there). The last are settled by other bounds, or by the
reason in tools/catalogue/settled.json. The same command once more registers the version. A release that accepts what a
registered one of its minor version accepts becomes another spelling of that. The default version stays.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from tools.catalogue import argparse_backends, mindspeed_fsdp2, register
from tools.catalogue.obtain import MINDSPEED, ORIGINS, obtain, released
from tools.catalogue.writer import Row, write

if TYPE_CHECKING:
    from launcher.mapping.backend import Backend

_PROJECTS = {
    "megatron": ("ms-swift", "swift"),
    "megatron_lm": ("Megatron-LM", None),
    "mindspeed": ("MindSpeed-LLM", None),
    "mindformers": ("mindformers", "mindformers"),
}


def main(argv: list[str] | None = None) -> int:
    """Make the catalogue that the command line asks for, and register the version; return the exit code."""
    options = _parser().parse_args(argv)
    if options.backend == "mindformers" and not options.pynative:
        _check_mindspore(options.mindspore)
    if options.source is None:
        _obtain(options)
    source, head_source = _locate(options)
    if options.pynative or options.fsdp2 or options.output:
        _make(options, source, head_source)
        return 0  # another entry point of a version is none of its own
    row = {"name": options.version, "released": options.released or released(source)}
    folders = {_PROJECTS[options.backend][0]: (source, options.version)}
    if options.backend == "mindspeed":
        row["core"] = _core(options.megatron_lm)
        folders |= {
            "MindSpeed": (options.mindspeed, options.version),
            "Megatron-LM": (options.megatron_lm, row["core"]),
        }
    return _register(options.backend, row, folders, lambda: _make(options, source, head_source))


def _check_mindspore(folder: Path | None) -> None:
    """Refuse to make a catalogue of MindFormers without what its `context` and `parallel` hand on.

    Raises:
        SystemExit: no folder with MindSpore's package is named.
    """
    if folder is None or not (folder / "mindspore" / "context.py").is_file():
        given = "is not given" if folder is None else f"{folder}: no mindspore/context.py in it"
        raise SystemExit(
            f"--mindspore {given}; MindSpore declares keys of `context` and `parallel`, and they would be missing\n"
            "give the site-packages of an environment with the MindSpore that this MindFormers wants (pip install"
            " mindspore==…), or its unpacked wheel"
        )


def _make(options: argparse.Namespace, source: Path, head_source: dict[str, str]) -> None:
    """Write the catalogue."""
    head, rows = _extract(options, source)
    variant = "-pynative" if options.pynative else "-fsdp2" if options.fsdp2 else ""
    name = options.version + variant
    full: dict[str, object] = {"backend": options.backend, "version": name, "source": head_source} | head
    out = options.output or register.BACKENDS / options.backend / "catalogue" / f"{name}.json"
    write(out, full, rows)
    print(f"{out}: {len(rows)} arguments")
    if options.backend == "mindformers" and not variant and not options.output:
        _write_pynative(source, head_source, options.version)


def _write_pynative(source: Path, head_source: dict[str, str], version: str) -> None:
    """Write the catalogue of the version's pynative trainer, if it has one."""
    from tools.catalogue import mindformers_pynative

    if not mindformers_pynative.is_in(source):
        return
    head, rows = mindformers_pynative.pynative(source)
    made_by = f"tools/catalogue mindformers --version {version} --pynative"
    name = f"{version}-pynative"
    out = register.BACKENDS / "mindformers" / "catalogue" / f"{name}.json"
    full = {"backend": "mindformers", "version": name, "source": {**head_source, "made_by": made_by}} | head
    write(out, full, rows)
    print(f"{out}: {len(rows)} keys of its pynative trainer")


def _remove(folder: Path, version: str) -> None:
    for name in (version, f"{version}-pynative"):
        (folder / f"{name}.json").unlink(missing_ok=True)


def _register(backend: str, row: dict[str, str], folders: dict[str, tuple[Path, str]], make: Callable[[], None]) -> int:
    """Enter the version, say what it changes and what is unsettled; take it out again if anything is.

    Args:
        row: the version's row of `versions.json`.
        folders: project to its checkout and version, for all that the version is made of.
        make: writes the catalogue.
    """
    file = register.file_of(backend)
    beside = [
        path for path in (file.parent / name for name in ("renames.json", "registered_names.json")) if path.exists()
    ]
    kept = {path: path.read_text(encoding="utf-8") for path in (file, *beside)}
    known, done = register.names(backend), False
    try:
        done = _entered(backend, row, folders, make)
    finally:
        if not done:
            for path, text in kept.items():
                path.write_text(text, encoding="utf-8")
            if row["name"] not in known:
                _remove(file.parent / "catalogue", row["name"])
    return 0 if done else 1


def _entered(backend: str, row: dict[str, str], folders: dict[str, tuple[Path, str]], make: Callable[[], None]) -> bool:
    """Enter the version and say what it changes; return whether everything is settled, and list what is not."""
    file = register.file_of(backend)
    before = file.read_text(encoding="utf-8")
    today = date.today().isoformat()
    file.write_text(register.entered(before, row, today), encoding="utf-8")
    # From here on the version is one of the backend's: modules that read the file are imported only now.
    make()
    from launcher.mapping.backend import get_backend
    from tools.catalogue import changes, renames
    from tools.catalogue.evidence import Tree, Trees
    from tools.catalogue.facts import moved_facts
    from tools.catalogue.unsettled import unsettled

    found, version = get_backend(backend), row["name"]
    around = register.neighbours(list(found.versions), version)
    equal = next((each for each in around if each is not None and _is_patch(found, each, version)), None)
    if equal is not None and changes.same_arguments(found.catalogue(equal), found.catalogue(version)):
        file.write_text(register.made_equal(before, row, equal, today), encoding="utf-8")
        _remove(file.parent / "catalogue", version)
        print(f"{version} accepts what {equal} accepts: another spelling of it in {file}, without a catalogue")
        return True
    for old, new in zip((around[0], version), (version, around[1]), strict=True):
        if old is not None and new is not None:
            print("\n".join(changes.report(found, old, new)))
    parts = (Tree(project, folder, version=known) for project, (folder, known) in folders.items())
    tree = Trees(trees=tuple(parts))
    moved = moved_facts(found, version, tree)
    if moved:
        print(f"look at: rules of whose source lines {version} has none (moved, reworded or gone): {', '.join(moved)}")
    left = unsettled(found, version, around, tree)
    if backend == "megatron":
        if renames.main([]):
            left.append("renames.json: what the lines above say")
        left += _read_names(version, folders["ms-swift"][0], list(found.versions[::-1]))
    if left:
        print(
            f"\n{found.title} {version} is not registered. To be settled, then the same command again:",
            *left,
            sep="\n  ",
        )
        return False
    print(f"\n{found.title} {version} is registered in {file}; the default stays {found.default_version}")
    return True


def _read_names(version: str, source: Path, versions: list[str]) -> list[str]:
    """Put the templates and model types that a version of ms-swift registers into the file; return the unsettled."""
    from tools.catalogue import swift_names

    try:
        text = swift_names.completed(swift_names.FILE.read_text(encoding="utf-8"), versions, {version: source})
    except swift_names.Unreadable as error:
        return [f"registered_names.json: {error}"]
    swift_names.FILE.write_text(text, encoding="utf-8")
    return []


def _is_patch(found: Backend, known: str, version: str) -> bool:
    """Return whether two versions are of one minor version, and other releases of it."""
    return known != version and known.split(".")[:2] == version.split(".")[:2] and known in found.versions


def _obtain(options: argparse.Namespace) -> None:
    """Fetch the sources that the command line does not name."""
    options.revision = options.revision or {"megatron": "PyPI ms-swift ", "mindformers": "PyPI mindformers "}.get(
        options.backend, ""
    )
    if options.revision:
        options.revision += options.version
    if options.backend == "mindspeed" and not options.fsdp2 and not (options.mindspeed and options.megatron_lm):
        core = options.core
        options.mindspeed = options.mindspeed or obtain(MINDSPEED, options.version, core)
        options.megatron_lm = options.megatron_lm or obtain(ORIGINS["megatron_lm"], core)
    options.source = str(obtain(ORIGINS[options.backend], options.version))


def _core(checkout: Path) -> str:
    """Return the version of a Megatron-LM checkout."""
    text = (checkout / "megatron" / "core" / "package_info.py").read_text(encoding="utf-8")
    return ".".join(re.findall(r"^(?:MAJOR|MINOR|PATCH) = (\d+)", text, flags=re.MULTILINE))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.catalogue", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("backend", choices=list(_PROJECTS))
    parser.add_argument("--version", required=True, help="name of the catalogue: 4.6.0, 3.5-dev, master …")
    parser.add_argument(
        "--source", help="checkout, unpacked wheel, or `installed` for this interpreter's; else it is fetched"
    )
    parser.add_argument("--revision", help="what the source is, where it is no git checkout: a tag, a commit, PyPI …")
    parser.add_argument("--released", help="ISO date; else that of the commit, or of the newest file of the source")
    parser.add_argument("--core", default="0.12.1", help="Megatron-LM to fetch for MindSpeed-LLM (0.12.1)")
    parser.add_argument("--mindspeed", type=Path, help="MindSpeed checkout (mindspeed only)")
    parser.add_argument("--megatron-lm", type=Path, help="Megatron-LM checkout (mindspeed only)")
    parser.add_argument(
        "--mindspore", type=Path, help="folder that holds MindSpore's package (mindformers only, needed)"
    )
    parser.add_argument("--fsdp2", action="store_true", help="mindspeed: train_fsdp2.py's YAML instead")
    parser.add_argument("--pynative", action="store_true", help="mindformers: the pynative TrainConfig instead")
    parser.add_argument("-o", "--output", type=Path, help="another file for the catalogue; registers nothing")
    return parser


def _locate(options: argparse.Namespace) -> tuple[Path, dict[str, str]]:
    project, package = _PROJECTS[options.backend]
    variant = " --pynative" if options.pynative else " --fsdp2" if options.fsdp2 else ""
    made_by = f"tools/catalogue {options.backend} --version {options.version}{variant}"
    if options.source == "installed":
        spec = importlib.util.find_spec(package) if package else None
        if spec is None or spec.origin is None:
            raise SystemExit(f"{project} is not installed in {sys.executable}; give --source PATH")
        found = importlib.metadata.version(project)
        described = {"project": project, "version": found, "revision": f"PyPI {project} {found}", "made_by": made_by}
        return Path(spec.origin).parents[1], described
    path = Path(options.source).resolve()
    if not path.is_dir():
        raise SystemExit(f"--source {path}: no such folder")
    revision = options.revision or _git_revision(path)
    if next(path.rglob("*.py"), None) is None:
        works = f"; works: git clone --branch TAG {path} DIR, then --source DIR" if (path / "objects").is_dir() else ""
        raise SystemExit(f"--source {path}: holds no Python file, so neither a checkout nor an unpacked wheel{works}")
    described = {"project": project, "version": options.version, "revision": revision, "made_by": made_by}
    if options.backend == "mindspeed" and not options.fsdp2:
        if not (options.mindspeed and options.megatron_lm):
            raise SystemExit("mindspeed needs --mindspeed and --megatron-lm: its parser is made of all three projects")
        # A revision given by hand names all three, as in the file.
        if not options.revision:
            parts = {"MindSpeed-LLM": path, "MindSpeed": options.mindspeed, "Megatron-LM": options.megatron_lm}
            described["revision"] = ", ".join(f"{name} {_git_revision(part)}" for name, part in parts.items())
    return path, described


def _git_revision(path: Path) -> str:
    command = ["git", "-C", str(path), "describe", "--tags", "--always"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not (path / ".git").exists():
        raise SystemExit(f"{path} is no git checkout: say what it is with --revision")
    return done.stdout.strip()


def _extract(options: argparse.Namespace, source: Path) -> tuple[dict[str, object], list[Row]]:
    if options.backend == "megatron":
        from tools.catalogue import megatron_swift

        return megatron_swift.extract(source)
    if options.backend == "megatron_lm":
        return argparse_backends.megatron_lm(source)
    if options.fsdp2:
        return mindspeed_fsdp2.extract(source)
    if options.backend == "mindspeed":
        return argparse_backends.mindspeed_llm(source, options.mindspeed, options.megatron_lm)
    from tools.catalogue import mindformers, mindformers_pynative

    return mindformers_pynative.pynative(source) if options.pynative else mindformers.static(source, options.mindspore)


if __name__ == "__main__":
    sys.exit(main())
