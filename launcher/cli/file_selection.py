"""Files that a command line names: paths, folders, glob patterns, and of these only what git says is changed."""

import glob
import os
import re
import shlex
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from launcher.cli.refusal import WrongUse
from launcher.nearest import nearest

# Files of a folder that may hold a training; a file that is named, or matched by a pattern, has any name.
SUFFIXES = (".sh", ".bash", ".slurm", ".sbatch", ".yaml", ".yml", ".json")
_NEVER = ("node_modules", "__pycache__")
_GIT_SECONDS = 60
# `**` as a whole part of a path, repeated or not.
_ANY_FOLDERS = re.compile(r"(?:(?<=/)|^)((?:\*\*/+)*\*\*)(?:/+|$)")


def is_pattern(word: str) -> bool:
    """Return whether an argument is a glob pattern that the shell did not expand."""
    return "=" not in word and glob.has_magic(word) and not word.startswith(("+", "~", "-"))


def is_path(word: str) -> bool:
    """Return whether an argument names a file, folder or pattern and not an override."""
    return is_pattern(word) or ("=" not in word and not word.startswith(("+", "~", "-"))) or os.path.isfile(word)


def selected(words: Sequence[str]) -> list[str]:
    """Return the files in the order of the command line, folders and patterns sorted, each file once.

    Raises:
        WrongUse: a path does not exist, or a pattern matches nothing.
    """
    found: dict[str, str] = {}
    for word in words:
        for path in _matches(word):
            found.setdefault(os.path.realpath(path), os.path.normpath(path))
    return list(found.values())


def _matches(word: str) -> Iterable[str]:
    path = Path(word)
    if path.is_dir():
        return sorted(_in_folder(path))
    if path.exists() or path.is_symlink():
        return (word,)
    if not is_pattern(word):
        near = nearest(path.name, [each.name for each in _folder(path)], limit=3)
        raise WrongUse(f"there is no file or folder {word}", *(str(path.parent / name) for name in near))
    found = sorted(each for each in _expanded(word) if Path(each).is_file())
    if not found:
        raise _unmatched(word)
    return found


def _unmatched(word: str) -> WrongUse:
    """Return the refusal of a pattern without a match: its folder is not there, or the files are further below."""
    parts = Path(word).parts
    fixed = next(at for at, part in enumerate(parts) if is_pattern(part))
    base, rest = Path(*parts[:fixed]), parts[fixed:]
    if not base.is_dir():
        near = nearest(base.name, [each.name for each in _folder(base) if each.is_dir()], limit=3)
        works = [shlex.quote(str(Path(base.parent, name, *rest))) for name in near]
        return WrongUse(f"no file matches {word!r}: there is no folder {base}", *works)
    below = str(Path(base, "**", parts[-1]))
    works = (
        [f"{shlex.quote(below)} (** means every folder below)"] if "**" not in word and any(_expanded(below)) else []
    )
    return WrongUse(f"no file matches {word!r}", *works)


def _folder(path: Path) -> list[Path]:
    try:
        return list(path.parent.iterdir())
    except OSError:
        return []


def _in_folder(folder: Path) -> Iterable[str]:
    for parent, names in _walk(str(folder)):
        yield from (os.path.join(parent, name) for name in names if name.endswith(SUFFIXES) and name[0] != ".")


def _walk(top: str) -> Iterator[tuple[str, list[str]]]:
    """Yield every folder below one, itself included, with the names of its files.

    Links to folders are not followed, as in bash: two of them that form a cycle have more paths than can be listed.
    Not os.walk, which calls itself for each level in Python 3.11, where a deep tree ends in a RecursionError.
    """
    left = [top]
    while left:
        folder = left.pop()
        folders: list[str] = []
        names: list[str] = []
        try:
            with os.scandir(folder or ".") as entries:
                for entry in entries:
                    (folders if entry.is_dir(follow_symlinks=False) else names).append(entry.name)
        except OSError:
            continue  # it is gone, may not be read, or its path is longer than the system takes
        left += [os.path.join(folder, name) for name in folders if name[0] != "." and name not in _NEVER]
        yield folder, names


def _expanded(pattern: str) -> Iterable[str]:
    """Return the paths that match a pattern; `**` stands for any folders below, those behind links excepted."""
    head, sign, tail = _ANY_FOLDERS.split(pattern, maxsplit=1) if _ANY_FOLDERS.search(pattern) else (pattern, "", "")
    if not sign:
        return glob.glob(pattern)
    tops = glob.glob(head) if glob.has_magic(head) else [head]
    below = (parent for top in tops if not head or os.path.isdir(top) for parent, _ in _walk(top.rstrip("/") or head))
    return (path for parent in below for path in _expanded(os.path.join(glob.escape(parent), tail or "*")))


# -- git


def reference(given: str, words: Sequence[str]) -> tuple[str, list[str]]:
    """Return the revision of `--changed [REF]` and the paths, the first of which the parser took for a revision.

    Raises:
        WrongUse: it is neither a revision nor a path, or there is no git repository.
    """
    if given == "HEAD" or _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{given}^{{commit}}"):
        return given, list(words)
    if Path(given).exists() or is_pattern(given):
        return "HEAD", [given, *words]
    raise WrongUse(f"--changed {given}: there is no such revision here (a shallow clone has few)", "--changed=HEAD")


def changed(revision: str) -> set[str]:
    """Return the real paths of files that differ from where this branch left a revision, and of untracked ones.

    Uncommitted changes count; deleted files do not.

    Raises:
        WrongUse: there is no git repository, or it does not hold the revision.
    """
    top = _required("rev-parse", "--show-toplevel").rstrip("\n")
    base = _git("merge-base", revision, "HEAD").strip() or revision
    differing = _required("diff", "--name-only", "-z", "--no-ext-diff", "--diff-filter=d", base, "--", ":/")
    untracked = _required("ls-files", "-z", "--others", "--exclude-standard", "--full-name", ":/")
    names = [name for name in (differing + untracked).split("\0") if name]
    return {os.path.realpath(os.path.join(top, name)) for name in names}


def repository_root() -> Path:
    """Return the folder that holds `.git` above the current one; the current one, if there is none."""
    here = Path.cwd()
    return next((each for each in (here, *here.parents) if (each / ".git").exists()), here)


def _required(*words: str) -> str:
    done = _run(words)
    if done.returncode:
        reason = os.fsdecode(done.stderr).strip().splitlines()
        raise WrongUse(f"--changed: git: {(reason or ['failed'])[0].removeprefix('fatal: ')}")
    return os.fsdecode(done.stdout)


def _git(*words: str) -> str:
    """Return git's output; empty: it failed."""
    done = _run(words)
    return "" if done.returncode else os.fsdecode(done.stdout)


def _run(words: Sequence[str]) -> "subprocess.CompletedProcess[bytes]":
    # A repository's own configuration may name a program for fsmonitor: none is started.
    command = ["git", "-c", "core.fsmonitor=false", *words]
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=_GIT_SECONDS)
    except FileNotFoundError:
        raise WrongUse("--changed asks git, which is not installed") from None
    except subprocess.TimeoutExpired:
        raise WrongUse(f"--changed: git did not answer within {_GIT_SECONDS} s") from None
