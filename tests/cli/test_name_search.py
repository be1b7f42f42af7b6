"""Names are found by what people call them."""

import pytest

from launcher.cli.dispatch import dispatch
from launcher.cli.name_search import search_names
from launcher.cli.synonyms import ALIASES, WORDS
from launcher.job import fields
from launcher.mapping.backend import backend_names, get_backend

NEEDS = {
    "resume": "checkpoint.load",
    "wandb": "logging.wandb_project",
    "yarn": "model.rope_scaling.type",
    "max_epochs": "schedule.epochs",
    "--max-epochs": "schedule.epochs",
    "per_device_train_batch_size": "batch.micro_batch_size",
    "resume_from_checkpoint": "checkpoint.load",
    "long context": "model.rope_scaling.type",
    "128K": "batch.seq_length",
    "flash": "kernels.attention_backend",
    "num_query_groups": "model.num_key_value_heads",
    "tensor_model_parallel_size": "parallel.tp",
    "rope_theta": "model.rope_theta",
    "Gradient Checkpointing": "recompute.granularity",
    "own-data": "data.paths",
    "lora": "lora.rank",
    "oom": "recompute.granularity",
    "recompute_gran": "recompute.granularity",
}


@pytest.mark.parametrize("query", NEEDS)
def test_a_name_is_found_by_what_people_call_it(query):
    backends = [get_backend(name) for name in backend_names()]
    found = [hit.name for hit in search_names(query, backends, limit=3)]
    assert NEEDS[query] in found


def test_synonyms_and_aliases_name_fields_that_exist():
    names = [path for paths in (*WORDS.values(), *ALIASES.values()) for path in paths.split()]
    assert [name for name in names if name not in fields()] == []


def test_no_synonym_stands_for_two_things():
    words = [word for group in WORDS for word in group.split()]
    assert len(words) == len(set(words))


def test_nothing_is_found_for_nothing():
    assert search_names("", []) == []
    assert search_names("qqqqzzzz", []) == []


# Names of transformers and peft that a part of a backend has, too, for something else.
CALLED = {
    "gradient_accumulation_steps": "batch.global_batch_size",
    "r": "lora.rank",
    "max_steps": "schedule.train_iters",
    "report_to": None,
}


@pytest.mark.parametrize("name", CALLED)
def test_a_name_of_another_tool_is_explained_before_what_else_is_called_so(name, capsys):
    assert dispatch(["explain", name]) == 0
    first = " ".join(capsys.readouterr().out.split())
    path = CALLED[name]
    assert first.startswith(f"{name} is called {path} ") if path else "is called" not in first
