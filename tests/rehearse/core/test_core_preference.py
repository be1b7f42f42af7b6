"""Direct preference optimisation: TRL's loss, the same at every layout."""

import json
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from core_world import DENSE, MOE, Run, Zygote, split_args

from launcher.rehearse.core.data.preferences import preference_samples
from launcher.rehearse.core.data.tokenizer import load
from launcher.rehearse.core.options import DataOptions, LoraOptions, PreferenceOptions

pytestmark = pytest.mark.slow

TOLERANCE = 1e-5
PLAIN = PreferenceOptions(beta=0.1)
LORA = LoraOptions(rank=4, alpha=8.0)
LONGER = split_args("--seq-length 64 --max-position-embeddings 64")
MODELS = {
    "dense": [*DENSE, *LONGER, "--lr", "1e-3"],
    "moe": [*DENSE, *MOE, *LONGER, "--lr", "1e-3"],
}
LAYOUTS = {
    "TP2 SP": ("dense", "--tensor-model-parallel-size 2 --sequence-parallel"),
    "PP2": ("dense", "--pipeline-model-parallel-size 2"),
    "PP2 VPP2": ("dense", "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2"),
    "CP2": ("dense", "--context-parallel-size 2"),
    "DP2": ("dense", "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather"),
    "MoE EP2": ("moe", "--expert-model-parallel-size 2"),
}


FORMS: dict[str, dict[str, Any]] = {
    "messages and response": {
        "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes"}],
        "rejected_response": "No",
    },
    "two conversations": {
        "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes"}],
        "rejected_messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "No"}],
    },
    "prompt": {"prompt": "Hi", "chosen": "Yes", "rejected": "No"},
    "prompt of turns": {
        "prompt": [{"role": "user", "content": "Hi"}],
        "chosen": [{"role": "assistant", "content": "Yes"}],
        "rejected": [{"role": "assistant", "content": "No"}],
    },
}


@pytest.fixture(scope="module")
def alone(zygote: Zygote) -> Callable[[str], Run]:
    return cache(lambda name: zygote.run(MODELS[name], preference=PLAIN))


@pytest.mark.sample(keep=2)
@pytest.mark.parametrize("model,layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_a_layout_trains_like_one_process(zygote: Zygote, alone: Callable[[str], Run], model: str, layout: str) -> None:
    run = zygote.run([*MODELS[model], *layout.split()], ranks=2, preference=PLAIN)
    assert run.losses == pytest.approx(alone(model).losses, abs=TOLERANCE)
    assert run.summary["grad_norms"] == pytest.approx(alone(model).summary["grad_norms"], rel=1e-4)


@pytest.mark.parametrize("lora", [None, LORA], ids=["all parameters", "LoRA"])
def test_it_learns_from_where_policy_and_reference_are_one(
    zygote: Zygote, tmp_path: Path, lora: LoraOptions | None
) -> None:
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text((json.dumps(FORMS["prompt"]) + "\n") * 8)
    argv = [*MODELS["dense"], *(["--lr", "3e-2"] if lora else [])]
    run = zygote.run(argv, data=DataOptions(kind="preferences", paths=(str(pairs),)), preference=PLAIN, lora=lora)
    assert run.losses[0] == pytest.approx(math.log(2), abs=1e-6)
    assert run.losses[-1] < run.losses[0] - 1e-2


def test_a_resumed_run_would_have_another_reference(zygote: Zygote, tmp_path: Path) -> None:
    half = split_args(f"--save {tmp_path}/saved --save-interval 3 --exit-interval 3")
    load = ["--load", f"{tmp_path}/saved"]
    zygote.run([*MODELS["dense"], *half], preference=PLAIN)
    refused = zygote.run([*MODELS["dense"], *load], preference=PLAIN)
    assert refused.exit_codes == [1]
    assert "--finetune" in refused.output
    restarted = zygote.run([*MODELS["dense"], *load, "--finetune"], preference=PLAIN)
    assert restarted.losses[0] == pytest.approx(math.log(2), abs=1e-6)


def test_lora_resumes_with_the_same_reference(zygote: Zygote, tmp_path: Path) -> None:
    argv = [*MODELS["dense"], "--lr", "3e-2"]
    half = split_args(f"--save {tmp_path}/saved --save-interval 3 --exit-interval 3")
    whole = zygote.run(argv, preference=PLAIN, lora=LORA).losses
    zygote.run([*argv, *half], preference=PLAIN, lora=LORA)
    rest = zygote.run([*argv, "--load", f"{tmp_path}/saved"], preference=PLAIN, lora=LORA).losses
    assert rest == pytest.approx(whole[3:], abs=TOLERANCE)


@pytest.mark.parametrize("record", FORMS.values(), ids=FORMS.keys())
def test_every_form_is_the_same_pair(tmp_path: Path, record: dict[str, Any]) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text(json.dumps(record) + "\n")
    tokenizer = load(None)
    tokens, mask = preference_samples((str(path),), tokenizer, 40).get(0)
    for row, answer in enumerate(("Yes", "No")):
        learned = [int(token) for token, learn in zip(tokens[row][1:], mask[row], strict=True) if learn]
        assert learned == tokenizer.encode(f"{answer}<|im_end|>\n")


@pytest.mark.parametrize("record", [{"messages": []}, {"prompt": "Hi", "chosen": "Yes"}, {"text": "Hi"}])
def test_what_is_no_pair_is_named_with_its_line(zygote: Zygote, tmp_path: Path, record: dict[str, Any]) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text(json.dumps(FORMS["prompt"]) + "\n" + json.dumps(record) + "\n")
    data = DataOptions(kind="preferences", paths=(str(path),))
    run = zygote.run(MODELS["dense"], data=data, preference=PLAIN)
    assert run.exit_codes == [1]
    assert f"{path}:2: no pair of answers" in run.output


LOSSES = {
    "plain": PreferenceOptions(beta=0.3),
    "label smoothing": PreferenceOptions(beta=0.3, label_smoothing=0.1),
    "with the chosen answer's loss": PreferenceOptions(beta=0.3, rpo_alpha=0.5),
}


@pytest.mark.parametrize("options", LOSSES.values(), ids=LOSSES.keys())
def test_the_second_loss_is_trls_on_transformers(
    zygote: Zygote, model: Callable[[str], Path], tmp_path: Path, options: PreferenceOptions
) -> None:
    """The checkpoint after one step, converted, against the start model: TRL's formula on transformers' logits."""
    import torch
    from core_models import answer_log_probabilities

    from tests.convert.core_logits import megatron_argv
    from tests.convert.helpers import launch

    folder, start, saved, trained = model("qwen3"), tmp_path / "start", tmp_path / "saved", tmp_path / "trained"
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text((json.dumps({"prompt": "a", "chosen": "bc", "rejected": "d"}) + "\n") * 8)
    assert launch("hf-to-mcore", "--model", folder, "--out", start) == 0
    argv = megatron_argv(str(folder), "schedule.train_iters=2", "batch.seq_length=48")
    places = ["--load", str(start), "--finetune", "--save", str(saved), "--save-interval", "1"]
    data = DataOptions(kind="preferences", paths=(str(pairs),))
    run = zygote.run([*argv, *places], data=data, preference=options)
    (saved / "latest_checkpointed_iteration.txt").write_text("1")
    assert launch("mcore-to-hf", "--checkpoint", saved, "--model", folder, "--out", trained) == 0
    samples = preference_samples((str(pairs),), load(None), 48).get(0)
    policy, reference = (answer_log_probabilities(path, *samples) for path in (trained, folder))
    logits = (policy[0] - policy[1]) - (reference[0] - reference[1])
    beta, smoothing = options.beta, options.label_smoothing
    sigmoid = torch.nn.functional.logsigmoid
    expected = -sigmoid(beta * logits) * (1 - smoothing) - sigmoid(-beta * logits) * smoothing
    if options.rpo_alpha is not None:
        expected = expected - options.rpo_alpha * policy[0] / samples[1][0].sum()
    assert run.losses[1] == pytest.approx(float(expected), rel=1e-6)
    assert abs(run.losses[1] - run.losses[0]) > 1e-3
