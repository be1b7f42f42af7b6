"""Text in YAML is read back as it was: by MindFormers (PyYAML), and in manifests."""

import yaml
from hypothesis import given
from hypothesis import strategies as st

from backends.mindformers.yaml_file import parse, render
from launcher.executors.kubernetes.executor import as_yaml
from launcher.mapping.native import NativeArg, NativeArgs
from tests.injection.hostile import PLAIN

TEXTS = st.sampled_from(list(PLAIN.values())) | st.text(st.characters(codec="utf-8"), max_size=8)


@given(TEXTS, TEXTS)
def test_a_file_of_mindformers_says_what_it_is_given(text: str, other: str) -> None:
    values = {"a": text, "b.c": (text, other)}
    args = tuple(NativeArg(flag=flag, value=value) for flag, value in values.items())
    assert parse(render(NativeArgs(backend="mindformers", version="2.1.0", args=args))) == values


@given(TEXTS, TEXTS)
def test_a_manifest_says_what_it_is_given(key: str, text: str) -> None:
    tree = {"metadata": {key: text}, "data": {"x": f"{text}\n{key}"}}
    assert list(yaml.safe_load_all(as_yaml([tree]))) == [tree]
