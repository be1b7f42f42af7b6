"""One command that makes a catalogue file from a checkout or an installed package.

    python -m tools.catalogue megatron    --version 4.6.0  --source installed
    python -m tools.catalogue megatron    --version 3.5-dev --source ~/src/ms-swift --revision 54e9c505
    python -m tools.catalogue megatron_lm --version 0.16.1 --source ~/src/Megatron-LM
    python -m tools.catalogue mindspeed   --version master --source ~/src/MindSpeed-LLM --mindspeed ~/src/MindSpeed \
        --megatron-lm ~/src/Megatron-LM
    python -m tools.catalogue mindformers --version 2.1.0  --source ~/wheels/mindformers-2.1.0 --mindspore ~/wheels/ms

Checkouts must be at the wanted revision. megatron_lm and mindspeed build the project's real parser and need torch on
CPU in this interpreter; the others only read source. The file goes to backends/BACKEND/catalogue/VERSION.json.
`python -m tools.catalogue.renames` checks and completes backends/megatron/renames.json afterwards.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import subprocess
import sys
from pathlib import Path

from tools.catalogue import argparse_backends, megatron_swift, mindspeed_fsdp2
from tools.catalogue.writer import Row, write

_BACKENDS = Path(__file__).resolve().parents[2] / "backends"
_PROJECTS = {
    "megatron": ("ms-swift", "swift"),
    "megatron_lm": ("Megatron-LM", None),
    "mindspeed": ("MindSpeed-LLM", None),
    "mindformers": ("mindformers", "mindformers"),
}


def main(argv: list[str] | None = None) -> int:
    """Make the catalogue that the command line asks for; return the exit code."""
    options = _parser().parse_args(argv)
    source, head_source = _locate(options)
    head, rows = _extract(options, source)
    variant = "-pynative" if options.pynative else "-fsdp2" if options.fsdp2 else ""
    name = options.version + variant
    full: dict[str, object] = {"backend": options.backend, "version": name, "source": head_source} | head
    out = options.output or _BACKENDS / options.backend / "catalogue" / f"{name}.json"
    write(out, full, rows)
    print(f"{out}: {len(rows)} arguments")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.catalogue", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("backend", choices=list(_PROJECTS))
    parser.add_argument("--version", required=True, help="name of the catalogue: 4.6.0, 3.5-dev, master …")
    parser.add_argument(
        "--source", required=True, help="checkout, unpacked wheel, or `installed` for this interpreter's"
    )
    parser.add_argument("--revision", help="what the source is, where it is no git checkout: a tag, a commit, PyPI …")
    parser.add_argument("--mindspeed", type=Path, help="MindSpeed checkout (mindspeed only)")
    parser.add_argument("--megatron-lm", type=Path, help="Megatron-LM checkout (mindspeed only)")
    parser.add_argument("--mindspore", type=Path, help="folder that holds MindSpore's package (mindformers only)")
    parser.add_argument("--fsdp2", action="store_true", help="mindspeed: train_fsdp2.py's YAML instead")
    parser.add_argument("--pynative", action="store_true", help="mindformers: the pynative TrainConfig instead")
    parser.add_argument("-o", "--output", type=Path)
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
        return megatron_swift.extract(source)
    if options.backend == "megatron_lm":
        return argparse_backends.megatron_lm(source)
    if options.fsdp2:
        return mindspeed_fsdp2.extract(source)
    if options.backend == "mindspeed":
        return argparse_backends.mindspeed_llm(source, options.mindspeed, options.megatron_lm)
    from tools.catalogue import mindformers

    return mindformers.pynative(source) if options.pynative else mindformers.static(source, options.mindspore)


if __name__ == "__main__":
    sys.exit(main())
