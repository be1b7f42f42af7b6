"""The chat template that a model gets where ms-swift cannot tell it from a name."""

import pytest

from launcher import api

# Model, and ms-swift's template of it: swift/model/models/{llama,qwen}.py @4.6.0.
TEMPLATES = {"llama2_7b": "llama", "llama3_8b": "llama3", "llama3_1_8b": "llama3_2", "qwen2_5_7b_instruct": "qwen2_5"}


@pytest.mark.parametrize("model", TEMPLATES)
def test_the_template_is_that_of_the_generation(model: str) -> None:
    data = ("model.pretrained=false", "data.format=messages", "data.paths=[chats.jsonl]", "backend=megatron")
    sizes = ("batch.global_batch_size=8", "batch.seq_length=128", "schedule.train_iters=3")
    job = api.compose([f"model={model}", "task=sft", *data, *sizes])
    assert api.translate(job, version="4.6.0").get("template") == TEMPLATES[model]
