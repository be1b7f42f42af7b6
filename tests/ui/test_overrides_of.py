"""An imported job as overrides is the job that its file composes."""

from pathlib import Path

import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from launcher.compose import compose
from launcher.importing.job_file import job_yaml
from launcher.importing.read_command import ImportOptions
from launcher.importing.read_file import read_file
from launcher.job import as_tree
from launcher.ui.imports import ported_to
from launcher.ui.overrides_of import overrides_of
from launcher.ui.words import refused
from tests.conftest import ROOT

DATA = ROOT / "tests" / "importing" / "data"


@pytest.mark.parametrize("file", [path.name for path in sorted(DATA.iterdir())])
def test_an_import_is_the_same_job_on_the_page(file: str, tmp_path: Path) -> None:
    text = job_yaml(read_file(DATA / file, ImportOptions(partial=True))[0], file, with_version=True)
    words = overrides_of(yaml.safe_load(text))
    assert refused(words) == []
    _assert_the_same_job(words, text, tmp_path / "job.yaml")


@pytest.mark.parametrize("target", ["megatron", "mindformers"])
def test_a_port_is_the_same_job_on_the_page(target: str, tmp_path: Path) -> None:
    found = ported_to(str(DATA / "mindspeed_qwen3.sh"), "script.sh", None, target)
    _assert_the_same_job(found["words"], found["yaml"], tmp_path / "job.yaml")


def _assert_the_same_job(words: list[str], text: str, written: Path) -> None:
    written.write_text(text)
    on_page, from_file = as_tree(compose(words, here=False)), as_tree(compose([f"+job={written}"]))
    for tree in (on_page, from_file):  # named by the file
        tree.update(name=None, output_dir=None)
        tree["checkpoint"]["save"] = None
    assert on_page == from_file


_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=20)
)


@given(value=_SCALARS | st.lists(_SCALARS, max_size=4))
def test_any_value_of_an_argument_is_read_back(value: object) -> None:
    (word,) = overrides_of({"backend": {"args": {"x": value}}})
    read = OverridesParser.create().parse_override(word).value()
    assert _plain(read) == value


def _plain(read: object) -> object:
    """Return text without the mark of its quotes, as composition reads it."""
    if isinstance(read, list):
        return [_plain(each) for each in read]
    return getattr(read, "text", read)
