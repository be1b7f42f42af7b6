"""Hydra config source that maps any folder or file to options of a group, such as recipes/ to `+recipe=`."""

from pathlib import Path

from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigLoadError, ConfigResult, ConfigSource
from omegaconf import DictConfig, OmegaConf

from launcher.compose.search_path import PLUGIN_GROUPS, is_plugin
from launcher.compose.user_files import check_file
from launcher.job.migrations import JOB_FILES, migrated
from launcher.job.schema import field_paths

SCHEME, FOLDER, PLUGINS = "launch", "launchdir", "launchplugin"
_BACKEND, _OVERRIDE = "backend", "override /backend"


class MountedSource(ConfigSource):
    """`launch://recipe=/folder` maps /folder/x.yaml to option x of group recipe; a file is mapped to its alias.

    `launch://job/alias=/folder/file.yaml` maps one file, `launch://job/alias!model!task=…` without these sections,
    which the command line overrides. Files without a `# @package` header are whole jobs, or the fields of the group's
    section (a copy of one of conf/hardware).
    """

    def __init__(self, provider: str, path: str) -> None:
        super().__init__(provider=provider, path=path)
        name, _, target = self.path.partition("=")
        self.target = Path(target)
        self.group, _, alias = name.partition("/")
        self.alias, *self.without = alias.split("!")

    @staticmethod
    def scheme() -> str:
        return SCHEME

    def _file(self, config_path: str) -> Path | None:
        group, _, option = config_path.removesuffix(".yaml").partition("/")
        if group != self.group or not option:
            return None
        if self.alias:
            return self.target if option == self.alias else None
        path = self.target / f"{option}.yaml"
        return path if path.is_file() else None

    def load_config(self, config_path: str) -> ConfigResult:
        path = self._file(config_path)
        if path is None:
            raise ConfigLoadError(f"Config not found: {config_path}")
        check_file(path)
        text = path.read_text(encoding="utf-8-sig")
        header = ConfigSource._get_header_dict(text[:512])
        config = OmegaConf.create(text) if text.strip() else OmegaConf.create({})
        header["package"] = header.get("package") or (self.group if _is_section(self.group, config) else "_global_")
        if isinstance(config, DictConfig):
            config = _migrated(config, str(path))
            for section in self.without:
                left = config.pop(section, None)
                if section == _BACKEND and isinstance(left, DictConfig):
                    _keep(left, config)
        return ConfigResult(
            config=config,
            path=f"{SCHEME}://{self.path}",
            provider=self.provider,
            header=header,
        )

    def available(self) -> bool:
        return self.target.exists()

    def is_group(self, config_path: str) -> bool:
        return config_path in ("", self.group)

    def is_config(self, config_path: str) -> bool:
        return self._file(config_path) is not None

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        if config_path != self.group or results_filter == ObjectType.GROUP:
            return []
        return [self.alias] if self.alias else sorted(path.stem for path in self.target.glob("*.yaml"))


class CheckedFolder(FileConfigSource):
    """A folder of the user's groups (`--config-dir`), whose files are checked before they are read."""

    @staticmethod
    def scheme() -> str:
        return FOLDER

    def load_config(self, config_path: str) -> ConfigResult:
        path = Path(self.path) / self._normalize_file_name(config_path)
        if path.is_file():
            check_file(path)
        return super().load_config(config_path)


class PluginSource(ConfigSource):
    """Options `backend=NAME` and `cluster=NAME` of installed plug-ins that have no file; searched last."""

    @staticmethod
    def scheme() -> str:
        return PLUGINS

    def load_config(self, config_path: str) -> ConfigResult:
        if not self.is_config(config_path):
            raise ConfigLoadError(f"Config not found: {config_path}")
        group, _, name = config_path.removesuffix(".yaml").partition("/")
        config = OmegaConf.create({PLUGIN_GROUPS[group][1]: name})
        return ConfigResult(config=config, path=f"{PLUGINS}://", provider=self.provider, header={"package": None})

    def available(self) -> bool:
        return True

    def is_group(self, config_path: str) -> bool:
        return config_path == "" or config_path in PLUGIN_GROUPS

    def is_config(self, config_path: str) -> bool:
        group, _, option = config_path.removesuffix(".yaml").partition("/")
        return is_plugin(group, option)

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        return []


def _is_section(group: str, config: object) -> bool:
    """Return whether a file holds fields of the section that its group is named after, and none of a whole job.

    A misspelt field of the section is one of it, so that it is reported as that.
    """
    known = field_paths()
    if not isinstance(config, DictConfig) or f"{group}.name" not in known:
        return False
    names = [str(name) for name in config]
    others = [name for name in names if f"{group}.{name}" not in known]
    whole = {path.partition(".")[0] for path in known}
    return len(others) < len(names) and not any(
        name in whole or OmegaConf.is_config(config.get(name)) for name in others
    )


def _migrated(config: DictConfig, where: str) -> DictConfig:
    tree = OmegaConf.to_container(config)
    assert isinstance(tree, dict)
    return OmegaConf.create(migrated({str(name): value for name, value in tree.items()}, JOB_FILES, where))


def _keep(left: DictConfig, config: DictConfig) -> None:
    """Keep a job file's backend arguments and environment in `imported` if the command line selects another backend.

    A file with `imported.args` was ported from another backend before: those arguments take precedence.
    """
    imported = config.get("imported")
    imported = imported if isinstance(imported, DictConfig) else OmegaConf.create({})
    if imported.get("args") is not None or not (left.get("args") or left.get("env")):
        return
    defaults = config.get("defaults") or ()
    named = [entry[_OVERRIDE] for entry in defaults if isinstance(entry, DictConfig) and _OVERRIDE in entry]
    source = {"backend": (named or [left.get("name")])[0], "version": left.get("version")}
    own = {"args": left.get("args") or {}, "env": left.get("env") or {}}
    config["imported"] = OmegaConf.merge({name: value for name, value in source.items() if value}, imported, own)


def register() -> None:
    """Register the config sources with Hydra; calling it twice is harmless."""
    Plugins.instance().register(MountedSource)
    Plugins.instance().register(CheckedFolder)
    Plugins.instance().register(PluginSource)
