"""The stand-in for vLLM answers as transformers does with the weights it was given, and refuses what vLLM would."""

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from backends.megatron.rehearse.vllm_standin.engine import LLMEngine  # noqa: E402
from backends.megatron.rehearse.vllm_standin.params import EngineArgs, SamplingParams  # noqa: E402

PROMPTS = ([5, 6, 7], [8, 9, 10, 11, 12], [13])
END = 60


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A tiny MoE model, whose experts' matrices are in the files one by one and in memory together."""
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "vocab_size": 64, "head_dim": 8}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
    config = transformers.Qwen3MoeConfig(**sizes, **heads, **experts, eos_token_id=END)
    torch.manual_seed(0)
    built = transformers.Qwen3MoeForCausalLM(config).eval()
    for tensor in built.parameters():
        tensor.data.normal_(std=0.3)
    folder = tmp_path_factory.mktemp("model")
    built.save_pretrained(folder)
    built.folder = folder
    return built


def tensors(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return dict(load_file(folder / "model.safetensors"))


def engine(model: Any, **args: Any) -> LLMEngine:
    made = LLMEngine.from_engine_args(EngineArgs(model=str(model.folder), dtype="float32", max_model_len=32, **args))
    load(made, tensors(model.folder))
    return made


def load(engine: LLMEngine, weights: dict[str, Any]) -> None:
    engine.model_executor.driver_worker.worker.model_runner.model.load_weights(iter(weights.items()))


def answers(engine: LLMEngine, **params: Any) -> list[Any]:
    for number, prompt in enumerate(PROMPTS):
        engine.add_request(str(number), {"prompt_token_ids": prompt}, SamplingParams(max_tokens=8, **params))
    found = []
    while engine.has_unfinished_requests():
        found += engine.step()
    return [output.outputs[0] for output in sorted(found, key=lambda output: output.request_id)]


def test_the_likeliest_answer_is_that_of_the_model_the_weights_are_of(model: Any) -> None:
    for prompt, answer in zip(PROMPTS, answers(engine(model), temperature=0.0, logprobs=0), strict=True):
        alone = model.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=8)[0, len(prompt) :].tolist()
        assert answer.token_ids == alone
        assert answer.finish_reason == ("stop" if alone[-1] == END else "length")
        logits = model(torch.tensor([[*prompt, *alone]])).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        expected = [logits[place, token].item() for place, token in enumerate(alone)]
        assert [chance[token].logprob for chance, token in zip(answer.logprobs, alone, strict=True)] == pytest.approx(
            expected, abs=1e-4
        )


def test_an_answer_ends_at_a_token_that_the_request_names(model: Any) -> None:
    first = answers(engine(model), temperature=0.0)[0].token_ids
    ended = answers(engine(model), temperature=0.0, stop_token_ids=[first[1]])[0]
    assert ended.token_ids == first[: first.index(first[1]) + 1]
    assert ended.finish_reason == "stop"


def test_one_seed_draws_one_answer_and_leaves_the_trainings_random_numbers(model: Any) -> None:
    before = torch.get_rng_state()
    drawn = [[answer.token_ids for answer in answers(engine(model), seed=seed)] for seed in (3, 3, 4)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert torch.equal(torch.get_rng_state(), before)
    once = engine(model)
    assert [each.token_ids for each in answers(once)] != [each.token_ids for each in answers(once)]


def test_no_more_requests_are_answered_at_once_than_the_engine_takes(model: Any) -> None:
    few = engine(model, max_num_seqs=2)
    few.add_request("a", {"prompt_token_ids": [5]}, SamplingParams())
    few.add_request("b", {"prompt_token_ids": [6]}, SamplingParams())
    few.add_request("c", {"prompt_token_ids": [7]}, SamplingParams())
    assert [output.request_id for output in few.step()] == ["a", "b"]


def test_an_export_that_is_not_the_models_is_refused_with_the_tensors(model: Any) -> None:
    weights = tensors(model.folder)
    lost = weights.pop("model.norm.weight")
    with pytest.raises(ValueError, match=r"1 missing_keys \(model\.norm\.weight\)"):
        load(engine(model), weights)
    with pytest.raises(ValueError, match=r"1 unexpected_keys \(model\.normal\.weight\)"):
        load(engine(model), weights | {"model.norm.weight": lost, "model.normal.weight": lost})


def test_what_sleeps_neither_loads_nor_answers_and_level_2_forgets(model: Any) -> None:
    one = engine(model)
    one.sleep(1)
    with pytest.raises(RuntimeError, match="loaded into an engine that sleeps"):
        load(one, tensors(model.folder))
    one.wake_up(tags=["weights"])
    with pytest.raises(RuntimeError, match="whose kv_cache sleep"):
        answers(one)
    one = engine(model)
    one.sleep(1)
    one.wake_up()
    assert answers(one)
    one.sleep(2)
    one.wake_up()
    with pytest.raises(RuntimeError, match="no weights: none were loaded"):
        answers(one)


def test_what_the_stand_in_lacks_is_refused(model: Any) -> None:
    with pytest.raises(NotImplementedError, match="vllm_enable_lora false"):
        engine(model, enable_lora=True)
    with pytest.raises(ValueError, match="a prompt of 40 tokens does not fit max_model_len 32"):
        engine(model).add_request("0", {"prompt_token_ids": [5] * 40}, SamplingParams())
    with pytest.raises(NotImplementedError, match="presence_penalty"):
        engine(model).add_request("0", {"prompt_token_ids": [5]}, SamplingParams(presence_penalty=1.0))
