"""Gets the source of a version where the command line names none: a wheel of PyPI, or a shallow clone of its tag."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

_CACHE = Path(os.environ.get("LAUNCH_SOURCES", Path.home() / ".cache" / "launch-sources"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where the releases of a project are.

    Attributes:
        package: distribution on PyPI; "": it is cloned.
        url: repository that is cloned.
        tag: branch or tag of a version.
    """

    package: str = ""
    url: str = ""
    tag: str = ""


ORIGINS = {
    "megatron": Origin(package="ms-swift"),
    "mindformers": Origin(package="mindformers"),
    "megatron_lm": Origin(url="https://github.com/NVIDIA/Megatron-LM", tag="core_v{version}"),
    "mindspeed": Origin(url="https://gitcode.com/Ascend/MindSpeed-LLM", tag="{version}"),
}
# What MindSpeed-LLM's parser is made of besides it.
MINDSPEED = Origin(url="https://gitcode.com/Ascend/MindSpeed", tag="{version}_core_r{core}")


def obtain(origin: Origin, version: str, core: str = "") -> Path:
    """Return the folder with a version's source, made once in $LAUNCH_SOURCES (~/.cache/launch-sources).

    Raises:
        SystemExit: it cannot be had from here; the message says what to give instead.
    """
    tag = origin.tag.format(version=version, core=core)
    name = origin.package or origin.url.rpartition("/")[2]
    folder = _CACHE / f"{name}-{tag or version}"
    if folder.is_dir():
        return folder
    _CACHE.mkdir(parents=True, exist_ok=True)
    command = (
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(_CACHE), f"{name}=={version}"]
        if origin.package
        else ["git", "clone", "--quiet", "--depth", "1", "--branch", tag, origin.url, str(folder)]
    )
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise SystemExit(
            f"{' '.join(command)}: {last}\ngive a checkout or an unpacked wheel of {version} with --source"
        )
    if origin.package:
        wheel = next(_CACHE.glob(f"{name.replace('-', '_')}-{version}-*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
            newest = max(each.date_time for each in archive.infolist())
        stamp = datetime(*newest, tzinfo=UTC).timestamp()
        os.utime(next(folder.glob("*.dist-info/METADATA")), (stamp, stamp))
    return folder


def released(folder: Path) -> str:
    """Return the date of a source (ISO): of its commit, or of the newest file where it is no git checkout."""
    if (folder / ".git").exists():
        command = ["git", "-C", str(folder), "log", "-1", "--format=%cs"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    infos = list(folder.glob("*.dist-info/METADATA")) or [path for path in folder.rglob("*.py") if path.is_file()]
    return datetime.fromtimestamp(max(path.stat().st_mtime for path in infos), tz=UTC).date().isoformat()
