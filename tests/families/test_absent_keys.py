"""A config.json without one of its keys is read as transformers' configuration class reads it, or refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from launcher.families.config_json import model_from_config
from launcher.families.registry import FAMILIES
from launcher.families.source import ModelConfigError
from tests.convert.twins import TWINS
from tests.families.test_config_json_published import one_tie

PUBLISHED = sorted(Path(__file__).with_name("published").glob("*.json"))
# Keys whose default in the classes says nothing of the model that they build.
NOT_BUILT = {"num_nextn_predict_layers": "no class builds the layers, whatever the key says"}


def _of_family(family: str) -> dict[str, Any]:
    """A published file of a family, as written: not one with an alias as model_type."""
    for path in PUBLISHED:
        config = json.loads(path.read_text(encoding="utf-8"))
        if config["model_type"] == family:
            assert isinstance(config, dict)
            return config
    raise AssertionError(f"tests/families/published has no config.json with model_type {family}")


def _refused(config: dict[str, Any]) -> bool:
    try:
        model_from_config(config)
    except ModelConfigError:
        return True
    return False


@pytest.mark.sample(keep=9)
@pytest.mark.parametrize("family", [family for family in FAMILIES if family not in TWINS])
def test_an_absent_key_means_the_default_of_transformers(family: str) -> None:
    transformers = pytest.importorskip("transformers")

    def saved(config: dict[str, Any]) -> dict[str, Any]:
        written = one_tie(transformers.AutoConfig.for_model(**config).to_dict())
        return {**written, "architectures": config["architectures"]}

    published = _of_family(family)
    for whole in (published, saved(published)):
        for key in sorted(set(whole) - {"model_type", "architectures", *NOT_BUILT}):
            rest = {name: value for name, value in whole.items() if name != key}
            if not _refused(rest):
                assert model_from_config(rest) == model_from_config(saved(rest)), f"{family} without {key}"
