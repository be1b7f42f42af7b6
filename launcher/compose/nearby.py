"""Offers `--config-dir` where a file of the unknown name lies in the working directory or in one of its folders."""

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from launcher.compose.errors import OPTION, ComposeError, Mistake
from launcher.compose.search_path import GROUPS, search_path

# Folders of the working directory that are looked at.
_MOST_FOLDERS = 200
_MOST_OFFERS = 3
Compose = Callable[[Sequence[str]], object]


def with_nearby(mistakes: Sequence[Mistake], config_dirs: Sequence[str], compose: Compose) -> list[Mistake]:
    """Return the mistakes; an unknown option of which there is a file nearby offers the folder that has it.

    Args:
        mistakes: all of one command line.
        config_dirs: those of the command line.
        compose: composes the command line with other folders, or raises ComposeError.
    """
    found = []
    for mistake in mistakes:
        folders = _folders(mistake) if mistake.rule == OPTION and mistake.field in GROUPS else ()
        works = [folder for folder in folders if _is_found(mistake, mistakes, [*config_dirs, folder], compose)]
        offers = tuple(f"--config-dir {shlex.quote(folder)}" for folder in works[:_MOST_OFFERS])
        found.append(replace(mistake, works=offers) if offers else mistake)
    return found


def _folders(mistake: Mistake) -> Iterator[str]:
    """Yield the folders with which the option would be found, one for each file, the working directory first."""
    option = mistake.where.partition("=")[2].strip().strip("'\"")
    files: set[Path] = set()
    if not option or "/" in option:
        return
    for folder in (".", *_inside()):
        places = search_path([folder])
        here = Path(folder).resolve()
        file = places.find(mistake.field, option)
        if file is not None and file.is_relative_to(here) and file not in files:
            files.add(file)
            yield folder


def _inside() -> list[str]:
    try:
        with os.scandir(".") as entries:
            names = [each.name for each in entries if not each.name.startswith((".", "-")) and each.is_dir()]
    except OSError:
        return []
    return sorted(names)[:_MOST_FOLDERS]


def _is_found(mistake: Mistake, mistakes: Sequence[Mistake], config_dirs: Sequence[str], compose: Compose) -> bool:
    """Return whether the option is found with these folders, and nothing else is wrong with its file."""
    try:
        compose(config_dirs)
    except ComposeError as error:
        known = {(each.what, each.where) for each in mistakes if each is not mistake}
        return all((each.what, each.where) in known for each in error.mistakes)
    return True
