"""Folders of configuration that ship with the program, and the hardware files among them."""

from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from launcher.job.hardware import Hardware


@cache
def shipped(name: str) -> Path:
    """Return the folder `conf` or `recipes`: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "_data" / name
    return installed if installed.is_dir() else package.parent / name


def hardware_for(devices: Collection[str], per_node: int = 1, *, timed: bool = False) -> tuple[str, ...]:
    """Return the options of the group `hardware` of these kinds of device whose nodes have so many.

    Args:
        timed: only those with a known peak, of which a step's time follows.
    """
    return tuple(
        name
        for name, values in shipped_hardware().items()
        if values.get("device") in devices
        and (values.get("node_devices") or per_node) >= per_node
        and not (timed and values.get("bf16_tflops") is None)
    )


@cache
def shipped_hardware() -> Mapping[str, Mapping[str, Any]]:
    """Return the values of each option of the group `hardware`, by name: `hardware=NAME`."""
    import yaml

    names = Hardware.__dataclass_fields__
    found: dict[str, Mapping[str, Any]] = {}
    for file in sorted((shipped("conf") / "hardware").glob("*.yaml")):
        tree = yaml.safe_load(file.read_text(encoding="utf-8"))
        found[file.stem] = MappingProxyType({key: _frozen(value) for key, value in tree.items() if key in names})
    return MappingProxyType(found)


def _frozen(value: Any) -> Any:
    return tuple(_frozen(each) for each in value) if isinstance(value, list) else value
