"""A Hydra config source that shows any folder or file as the option of a group, so that recipes/ can be `+recipe=`."""

from pathlib import Path

from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigLoadError, ConfigResult, ConfigSource
from omegaconf import DictConfig, OmegaConf

SCHEME = "launch"


class MountedSource(ConfigSource):
    """`launch://recipe=/folder` shows /folder/x.yaml as option x of group recipe; a file is shown under its alias.

    `launch://job/alias=/folder/file.yaml` shows one file, `launch://job/alias!model!task=…` without these sections,
    which the command line chooses anew. Files without a `# @package` header are whole jobs.
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
        text = path.read_text(encoding="utf-8")
        header = ConfigSource._get_header_dict(text[:512])
        header["package"] = header.get("package") or "_global_"
        config = OmegaConf.create(text) if text.strip() else OmegaConf.create({})
        if isinstance(config, DictConfig):
            for section in self.without:
                config.pop(section, None)
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


def register() -> None:
    """Make the scheme known to Hydra; registering twice is harmless."""
    Plugins.instance().register(MountedSource)
