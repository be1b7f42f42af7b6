"""What a tokenizer's files say of its padding, without loading it."""

import json
from pathlib import Path

import pytest

from launcher.families.tokenizer_files import with_tokenizer_files
from launcher.job import Job
from launcher.job.derive import with_fields

# name -> files, pad_is_eos, has_code
CASES = {
    "both named": ({"tokenizer_config.json": {"eos_token": "a", "pad_token": "b"}}, False, False),
    "null": ({"tokenizer_config.json": {"eos_token": "a", "pad_token": None}}, True, False),
    "same, as mappings": (
        {"tokenizer_config.json": {"eos_token": {"content": "a"}, "pad_token": {"content": "a"}, "auto_map": {}}},
        True,
        True,
    ),
    "in the older file": (
        {"tokenizer_config.json": {"eos_token": "a"}, "special_tokens_map.json": {"pad_token": "b"}},
        False,
        False,
    ),
    "default of the class": ({"tokenizer_config.json": {"tokenizer_class": "Qwen2Tokenizer"}}, True, False),
    "end of the class": (
        {"tokenizer_config.json": {"tokenizer_class": "LlamaTokenizer", "pad_token": "</s>"}},
        True,
        False,
    ),
    "unknown class": ({"tokenizer_config.json": {"tokenizer_class": "Own", "eos_token": "a"}}, None, False),
    "ids of the model": ({"config.json": {"eos_token_id": [2, 3], "pad_token_id": 3}}, True, None),
    "one id only": ({"config.json": {"eos_token_id": 2}}, None, None),
    "no JSON": ({"tokenizer_config.json": "{"}, None, None),
    "a list": ({"tokenizer_config.json": []}, None, None),
    "no file": ({}, None, None),
}


@pytest.mark.parametrize("case", CASES)
def test_facts(tmp_path: Path, case: str) -> None:
    files, pad_is_eos, has_code = CASES[case]
    for name, content in files.items():
        (tmp_path / name).write_text(content if isinstance(content, str) else json.dumps(content))
    for field in ("tokenizer.path", "model.path"):
        tokenizer = with_tokenizer_files(with_fields(Job(), {field: str(tmp_path)})).tokenizer
        assert (tokenizer.pad_is_eos, tokenizer.has_code) == (pad_is_eos, has_code)


def test_what_the_job_states_is_kept(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "a", "pad_token": "a"}')
    stated = {"tokenizer.path": str(tmp_path), "tokenizer.pad_is_eos": False}
    job = with_tokenizer_files(with_fields(Job(), stated))
    assert job.tokenizer.pad_is_eos is False
    assert job.origin("tokenizer.has_code").where == str(tmp_path)
