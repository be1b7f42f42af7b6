"""Names of templates and model types that ms-swift registers: how they are read, and what its package itself has."""

import json
import subprocess
from pathlib import Path

import pytest

from launcher.api import check, compose
from launcher.mapping.backend import get_backend
from tests.rehearse.native import environments
from tools.catalogue.swift_names import FILE, Unreadable, completed, ranges, registered

TABLE = json.loads(FILE.read_text(encoding="utf-8"))
_CONSTANTS = """
class LLMTemplateType:
    chatml = 'chatml'
    thinking = 'qwen3-thinking'
    unused = 'unused'
"""
_REGISTERED = """
@dataclass
class ChatMeta(TemplateMeta):
    template_type: str = LLMTemplateType.thinking

@dataclass
class OtherMeta(TemplateMeta):
    prefix: str = 'x'

register_template(OtherMeta(LLMTemplateType.chatml, prefix=[]))
register_template(ChatMeta())
register_template(ChatMeta(template_type='named'), exist_ok=True)
"""
_REAL = """
import json
from swift.model import MODEL_MAPPING
from swift.template import TEMPLATE_MAPPING
print(json.dumps({"template": sorted(TEMPLATE_MAPPING), "model_type": sorted(MODEL_MAPPING)}))
"""


def _source(folder: Path, text: str) -> Path:
    package = folder / "swift" / "template"
    package.mkdir(parents=True)
    (package / "constant.py").write_text(_CONSTANTS)
    (package / "llm.py").write_text(text)
    return folder


def test_registered_names_are_read_however_they_are_stated(tmp_path: Path) -> None:
    assert registered(_source(tmp_path, _REGISTERED), "template") == ("chatml", "named", "qwen3-thinking")


def test_a_name_that_the_source_does_not_state_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match=r"llm\.py:1"):
        registered(_source(tmp_path, "register_template(OtherMeta(names[0]))"), "template")


def test_names_have_the_versions_that_register_them() -> None:
    found = ranges({"1": ["a", "b"], "2": ["a", "c"], "3": ["a", "c"]})
    assert found == {"a": [None, None], "b": [None, "1"], "c": ["2", None]}
    with pytest.raises(Unreadable, match="a: not in 2"):
        ranges({"1": ["a"], "2": [], "3": ["a"]})


def test_every_registered_version_was_read() -> None:
    """A version that was not would refuse the names that are new in it."""
    missing = [version for version in get_backend("megatron").versions if version not in TABLE["versions"]]
    assert not missing, (
        f"python -m tools.catalogue.swift_names {' '.join(f'{version}=CHECKOUT' for version in missing)}"
    )
    assert TABLE["versions"] == list(get_backend("megatron").versions[::-1])


def test_a_version_is_read_beside_what_the_file_has_of_the_others(tmp_path: Path) -> None:
    sources = {}
    for version, names in {"1": "ab", "2": "ac", "3": "acd"}.items():
        calls = "".join(f"register_template(ChatMeta(template_type='{name}'))\n" for name in names)
        sources[version] = _source(tmp_path / version, calls)
        (sources[version] / "swift" / "model").mkdir()
    old = completed('{"versions": []}', ["1", "3"], {version: sources[version] for version in "13"})
    assert json.loads(old)["template"] == {"a": [None, None], "b": [None, "1"], "c": ["3", None], "d": ["3", None]}
    new = completed(old, ["1", "2", "3"], {"2": sources["2"]})
    assert new == completed('{"versions": []}', ["1", "2", "3"], sources)
    with pytest.raises(Unreadable, match="no source is named for 4"):
        completed(old, ["1", "3", "4"], {})


CASES = {
    "a made-up template": (["data.template=qwen33"], "SW-TEMPLATE", "did you mean qwen3?"),
    "a template of later versions": (["data.template=gemma4", "backend.version=3.12.6"], "SW-TEMPLATE", "gemma4"),
    "a made-up model type": (["backend.args.model_type=qwen3mo"], "SW-MODEL-TYPE", "did you mean qwen3_moe?"),
}


@pytest.mark.parametrize("name", CASES)
def test_names_that_are_not_registered_are_refused_unless_a_plugin_may_register_them(name: str) -> None:
    overrides, rule, words = CASES[name]
    found = {each.rule: each for each in check(compose(["backend=megatron", *overrides], recipe="qwen3_8b_sft"))}
    assert found[rule].severity == "error"
    assert words in found[rule].message
    for plugin in ("external_plugins", "custom_register_path"):
        words_ = [*overrides, f"backend.args.{plugin}=[mine.py]"]
        plugged = check(compose(["backend=megatron", *words_], recipe="qwen3_8b_sft"))
        assert rule not in {each.rule for each in plugged}


@pytest.mark.slow
def test_the_table_has_what_the_package_registers() -> None:
    result = subprocess.run(
        [str(environments.swift_python()), "-c", _REAL], capture_output=True, text=True, check=True, timeout=300
    )
    real = json.loads(result.stdout.splitlines()[-1])
    for argument, names in real.items():
        assert sorted(name for name, (_, until) in TABLE[argument].items() if until is None) == names
