"""Search path of configuration: groups and recipes that ship with the program, and folders of a user."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from launcher import plugins
from launcher.compose.errors import MORE, ComposeError, Mistake
from launcher.job.shipped import shipped
from launcher.nearest import nearest
from launcher.records import dataclass

# Groups whose files are whole or partial jobs (package `_global_`); they are added, not replaced.
WHOLE_JOB_GROUPS = ("recipe", "job", "strategy")
# Groups that fill one section of the same name.
SECTION_GROUPS = ("backend", "model", "hardware", "cluster", "task")
GROUPS = (*SECTION_GROUPS, *WHOLE_JOB_GROUPS)
# Groups of which a plug-in's name is an option without a file: its entry points, and the field that it sets.
PLUGIN_GROUPS = {"backend": ("launch.backends", "name"), "cluster": ("launch.executors", "executor")}
# Maximum number of names listed if none is near; the last entry counts the rest.
_MOST_NAMES = 40
_FEW_NAMES = 6


def is_plugin(group: str, option: str) -> bool:
    """Return whether a plug-in of this name is an option of `group`."""
    return group in PLUGIN_GROUPS and plugins.has(PLUGIN_GROUPS[group][0], option)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A folder whose YAML files are the options of a group."""

    group: str
    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPath:
    """All folders that options come from; the first one that has an option takes precedence."""

    roots: tuple[Path, ...]
    mounts: tuple[Mount, ...]

    @property
    def has_user_folders(self) -> bool:
        """Whether options come from folders beside the built-in ones."""
        return self.roots != (shipped("conf"),) or [mount.folder for mount in self.mounts] != [shipped("recipes")]

    def folders(self, group: str) -> Iterator[Path]:
        """Yield the folders that hold options of `group`, nearest to the user first."""
        yield from (mount.folder for mount in self.mounts if mount.group == group)
        yield from (root / group for root in self.roots)

    def options(self, group: str) -> list[str]:
        """Return the names of all options of `group`, plug-ins without a file among them."""
        names = {path.stem for folder in self.folders(group) if folder.is_dir() for path in folder.glob("*.yaml")}
        return sorted(names.union(plugins.names(PLUGIN_GROUPS[group][0], ()) if group in PLUGIN_GROUPS else ()))

    def has(self, group: str, option: str) -> bool:
        """Return whether a file or a plug-in is an option of `group`; plug-ins are only read where there is no file."""
        return self.find(group, option) is not None or is_plugin(group, option)

    def find(self, group: str, option: str) -> Path | None:
        """Return the file of an option, or None."""
        for folder in self.folders(group):
            path = folder / f"{option}.yaml"
            if os.path.isfile(path):
                return path
        return None

    def near(self, group: str, option: str) -> tuple[str, ...]:
        """Return options that look like `option`, nearest first; all of them if none is similar, or there are few."""
        names = self.options(group)
        near = nearest(option, names, cutoff=0.5)
        if len(names) <= _FEW_NAMES:
            return (*near, *(name for name in names if name not in near))
        left = len(names) - _MOST_NAMES
        return tuple(near or [*names[:_MOST_NAMES], *([f"{MORE} and {left} more"] if left > 0 else [])])


def search_path(config_dirs: Sequence[str] = ()) -> SearchPath:
    """Return the search path: the user's folders first, then the built-in ones.

    A user's folder may hold groups (`DIR/model/mine.yaml`), a `recipes` folder, and recipes directly. Whole jobs are
    mounted, so that their files need no `# @package` line.
    """
    own = [Path(folder).expanduser().resolve() for folder in config_dirs]
    missing = [folder for folder in own if not folder.is_dir()]
    if missing:
        raise ComposeError([Mistake(what=f"--config-dir {folder} is not a directory") for folder in missing])
    mounts = [Mount(group="recipe", folder=place) for folder in own for place in (folder, folder / "recipes")]
    mounts += (Mount(group=group, folder=folder / group) for group in WHOLE_JOB_GROUPS for folder in own)
    mounts.append(Mount(group="recipe", folder=shipped("recipes")))
    return SearchPath(roots=(*own, shipped("conf")), mounts=tuple(mount for mount in mounts if mount.folder.is_dir()))
