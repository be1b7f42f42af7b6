"""Packs what a GPU machine without network lacks into .gpu/archive.tar; `tools/gpu/archive.sh` starts it.

    tools/gpu/archive.sh [--python 3.12] [--engine 2.12.0 --torch 2.11.0 --architecture 90]

The machine (Linux, x86_64) has torch for its GPU, numpy and tokenizers; versions are those of pyproject.toml.
Transformer Engine is packed where `--engine` names its version, for one GPU architecture (tools/gpu/engine.py); einops,
onnx and onnxscript, which it imports, are on the machine.
"""

import argparse
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.gpu.engine import Engine, pack

ROOT = Path(__file__).resolve().parents[2]
ARCHIVE = ROOT / ".gpu" / "archive.tar"
LIMIT_MB = 60
_WHEELS = ("megatron-core", "hydra-core", "omegaconf", "packaging", "rich", "markdown-it-py", "mdurl", "pygments")
_COMPILED = ("psutil", "PyYAML")
_OF_ENGINE = ("pydantic", "annotated-types", "typing-inspection")
# Published without a wheel; omegaconf's metadata names the version.
_SOURCE = "antlr4-python3-runtime"
# pip matches the number exactly.
_GLIBC = (39, 35, 34, 31, 28, 27, 24, 17, 12, 5)


def requirement(name: str) -> str:
    """Return a package with the versions that pyproject.toml allows; the name alone where it names none."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    known: list[str] = [
        *project["dependencies"],
        *(each for extra in project["optional-dependencies"].values() for each in extra),
    ]
    return next((each for each in known if re.split(r"[<>=!~\[]", each)[0] == name), name)


def required_by(wheel: Path, name: str) -> str:
    """Return what a wheel's metadata requires of a package.

    Raises:
        LookupError: it requires none of it.
    """
    with zipfile.ZipFile(wheel) as content:
        (metadata,) = (each for each in content.namelist() if each.endswith(".dist-info/METADATA"))
        lines = content.read(metadata).decode("utf-8").splitlines()
    for line in lines:
        if line.startswith(f"Requires-Dist: {name}"):
            return (
                line.removeprefix("Requires-Dist: ")
                .partition(";")[0]
                .replace(" ", "")
                .replace("(", "")
                .replace(")", "")
            )
    raise LookupError(f"{wheel.name} does not require {name}")


def engine_packages(engine: Engine, folder: Path, work: Path) -> list[str]:
    """Pack Transformer Engine into a folder, and return the packages that it imports and the machine lacks."""
    pack(engine, folder, work)
    _pip("download", "--no-deps", "-d", str(work), _OF_ENGINE[0])
    (pydantic,) = work.glob("pydantic-*.whl")
    return [*_OF_ENGINE, required_by(pydantic, "pydantic-core")]


def download(python: str, folder: Path, more: Sequence[str] = ()) -> None:
    """Download the wheels for a Python version, and build the one that is published as source.

    Args:
        more: packages beside those that are always packed.
    """
    platforms = [f"manylinux_2_{number}_x86_64" for number in _GLIBC] + ["manylinux2014_x86_64", "manylinux1_x86_64"]
    target = ["--only-binary=:all:", "--implementation", "cp", "--python-version", python]
    for platform in platforms:
        target += ["--platform", platform]
    names = [requirement(name) for name in (*_WHEELS, *_COMPILED, *more)]
    _pip("download", "--no-deps", *target, "-d", str(folder), *names)
    (omegaconf,) = folder.glob("omegaconf-*.whl")
    _pip("wheel", "--no-deps", "-w", str(folder), required_by(omegaconf, _SOURCE))


def _pip(verb: str, *words: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", verb, "-q", "--disable-pip-version-check", *words], check=True)


def missing(folder: Path) -> Iterator[Path]:
    """Yield the wheels of a folder whose packages are not installed for this interpreter."""
    from importlib.metadata import PackageNotFoundError, distribution

    for wheel in sorted(folder.glob("*.whl")):
        try:
            distribution(wheel.name.partition("-")[0])
        except PackageNotFoundError:
            yield wheel


def main() -> int:
    """Write the archive; 1 where it is larger than the limit."""
    parser = argparse.ArgumentParser(
        prog="tools/gpu/archive.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", default="3.12", metavar="VERSION", help="of the machine (default: 3.12)")
    parser.add_argument(
        "--missing", type=Path, metavar="DIR", help="print the wheels of DIR that are not installed here"
    )
    parser.add_argument("--engine", metavar="VERSION", help="pack this Transformer Engine; compiles for minutes")
    parser.add_argument("--torch", default="2.11.0", metavar="VERSION", help="of the machine (default: 2.11.0)")
    parser.add_argument(
        "--architecture", type=int, default=90, metavar="N", help="of its GPU (default: 90, compute capability 9.0)"
    )
    options = parser.parse_args()
    if options.missing is not None:
        print("\n".join(map(str, missing(options.missing))))
        return 0
    ARCHIVE.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        folder, more = Path(work) / "wheels", list[str]()
        folder.mkdir()
        if options.engine:
            engine = Engine(
                version=options.engine, torch=options.torch, python=options.python, architecture=options.architecture
            )
            try:
                more = engine_packages(engine, folder, Path(work))
            except LookupError as error:
                print(f"--engine needs {error.args[0]}, which is not on this machine", file=sys.stderr)
                return 1
        download(options.python, folder, more)
        wheels = sorted(folder.glob("*.whl"))
        with tarfile.open(ARCHIVE, "w") as archive:
            for wheel in wheels:
                archive.add(wheel, f"wheels/{wheel.name}")
    size = ARCHIVE.stat().st_size / 1e6
    print(f".gpu/archive.tar: {size:.1f} MB, {len(wheels)} wheels for Python {options.python}")
    for wheel in wheels:
        print(f"  {wheel.name}")
    if size > LIMIT_MB:
        print(f"that is more than {LIMIT_MB} MB", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
