"""The reference's DPO loss is TRL's; the pairs are what backends read; MindSpeed-LLM's form of them."""

import dataclasses
import json
import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import backends.mindspeed.preference_pairs as script
from backends.mindspeed.preference_pairs import rewritten
from launcher.compose import compose
from launcher.job import Job
from launcher.parity.conversations import template_of
from launcher.parity.preference import Pair, read_pairs, write_pairs
from launcher.parity.reference_dpo import PreferenceOptions, preference_loss, preference_options
from launcher.parity.samples import reference_lacks
from launcher.pipeline import judge
from launcher.rehearse.sample_data import tokenizer_directory
from tests.sampling import examples

LOG = st.floats(-80, 0)


@given(
    values=st.lists(st.tuples(LOG, LOG, LOG, LOG), min_size=1, max_size=3),
    beta=st.floats(0.01, 2),
    smoothing=st.floats(0, 0.5),
    alpha=st.floats(0, 2),
)
@examples(50)
def test_the_loss_is_that_of_the_paper(
    values: list[tuple[float, float, float, float]], beta: float, smoothing: float, alpha: float
) -> None:
    """By the ratio of the odds, without a sigmoid: sigmoid(beta (a - b)) = p**beta / (p**beta + q**beta)."""
    torch = pytest.importorskip("torch")
    policy = torch.tensor([each[:2] for each in values], dtype=torch.float64)
    before = torch.tensor([each[2:] for each in values], dtype=torch.float64)
    pairs = [pair(range(3 + number)) for number in range(len(values))]
    preference = options(pairs=pairs, beta=beta, label_smoothing=smoothing, rpo_alpha=alpha)
    expected = 0.0
    for chosen, rejected, old_chosen, old_rejected in values:
        better, worse = beta * (chosen - old_chosen), beta * (rejected - old_rejected)
        top = max(better, worse)
        both = top + math.log(math.exp(better - top) + math.exp(worse - top))
        expected += ((1 - smoothing) * (both - better) + smoothing * (both - worse)) / len(values)
    expected -= alpha * sum(each[0] for each in values) / sum(len(each.chosen) for each in pairs)
    assert float(preference_loss(torch, preference, policy, before, pairs)) == pytest.approx(expected, rel=1e-9)


def options(pairs: Sequence[Pair], **values: float) -> PreferenceOptions:
    made = preference_options(compose(["+recipe=tiny_qwen3"]), Path("m"), Path("o"), pairs)
    return dataclasses.replace(made, **values)  # type: ignore[arg-type]


def pair(chosen: Sequence[int]) -> Pair:
    return Pair(prompt=[1], chosen=list(chosen), rejected=[2])


def test_equal_models_give_log_two() -> None:
    torch = pytest.importorskip("torch")
    values = torch.tensor([[-3.0, -90.0]])
    preference = options(pairs=[pair([1])], beta=0.3, label_smoothing=0.2, rpo_alpha=0.0)
    assert float(preference_loss(torch, preference, values, values, [pair([1])])) == pytest.approx(math.log(2))


THINKING = {
    "by default": ([], "<think>\n\n</think>\n\n", ""),
    "on": (["data.enable_thinking=true"], "", "<think>\n\n</think>\n\n"),
    "another template": (["data.template=chatml"], "", ""),
}


@pytest.mark.parametrize("name", THINKING)
def test_the_tokens_are_those_of_the_chat_template(tmp_path: Path, name: str) -> None:
    transformers = pytest.importorskip("transformers")
    words, before, learned = THINKING[name]
    job = compose(["+recipe=qwen3_8b_dpo", *words])
    shipped = Path(tokenizer_directory())
    tokenizer = transformers.AutoTokenizer.from_pretrained(shipped)
    write_pairs(tmp_path, job, samples=6, seq_length=128)
    lines = [json.loads(line) for line in (tmp_path / "pairs.jsonl").read_text().splitlines()]
    pairs = read_pairs(tmp_path, shipped, job)
    for line, found in zip(lines, pairs, strict=True):
        question, chosen = line["messages"]
        start = tokenizer.apply_chat_template([question], tokenize=False, add_generation_prompt=True)
        for tokens, answer in ((found.chosen, chosen["content"]), (found.rejected, line["rejected_response"])):
            assert tokenizer.decode(found.prompt) == start + before
            assert tokenizer.decode(tokens) == f"{learned}{answer}<|im_end|>\n"
            text = f"{start}{before}{learned}{answer}<|im_end|>\n"
            assert [*found.prompt, *tokens] == tokenizer(text, add_special_tokens=False)["input_ids"]
            assert len(found.prompt) + len(tokens) < 128
            assert answer == answer.strip()
    assert len({len(each.chosen) for each in pairs}) > 1
    assert all(each.chosen != each.rejected for each in pairs)
    assert any(len(each.chosen) != len(each.rejected) for each in pairs)


def test_pairs_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    job = compose(["+recipe=qwen3_8b_dpo"])
    with pytest.raises(ValueError, match="exceed the shipped text"):
        write_pairs(tmp_path, job, samples=10**5, seq_length=128)
    with pytest.raises(ValueError, match="too few for an answer"):
        write_pairs(tmp_path, job, samples=1, seq_length=40)
    unknown = compose(["+recipe=qwen3_8b_dpo", "data.template=gemma"])
    assert template_of(unknown) is None
    write_pairs(tmp_path, unknown, samples=1, seq_length=160)
    with pytest.raises(LookupError):
        read_pairs(tmp_path, Path(tokenizer_directory()), unknown)


ASKED = [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]
ANSWER = {"role": "assistant", "content": "yes"}


def test_mindspeeds_form_of_a_pair() -> None:
    expected = {
        "conversations": [{"from": "system", "value": "s"}, {"from": "human", "value": "q"}],
        "chosen": {"from": "gpt", "value": "yes"},
        "rejected": {"from": "gpt", "value": "no"},
    }
    assert rewritten({"messages": [*ASKED, ANSWER], "rejected_response": "no"}) == expected
    no = {"role": "assistant", "content": "no"}
    assert rewritten({"messages": [*ASKED, ANSWER], "rejected_messages": [*ASKED, no]}) == expected


WRONG = {
    "no rejected answer": ({"messages": [*ASKED, ANSWER]}, "no rejected_response"),
    "no answer": ({"messages": ASKED, "rejected_response": "no"}, "do not end with a question"),
    "a tool": (
        {"messages": [{"role": "tool", "content": "t"}, *ASKED, ANSWER], "rejected_response": "no"},
        "role 'tool'",
    ),
    "no messages": ({"text": "t"}, "KeyError: 'messages'"),
    "no JSON": ("{", "JSONDecodeError"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_line_that_is_no_pair_is_named(tmp_path: Path, name: str) -> None:
    line, said = WRONG[name]
    good = json.dumps({"messages": [*ASKED, ANSWER], "rejected_response": "no"})
    (tmp_path / "in.jsonl").write_text(f"{good}\n{line if isinstance(line, str) else json.dumps(line)}\n")
    command = [sys.executable, str(script.__file__), "out/pairs.jsonl", "in.jsonl"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert said in done.stderr
    assert "in.jsonl:2" in done.stderr


def test_the_plan_rewrites_the_pairs_of_all_files_into_the_one_that_is_trained_on(tmp_path: Path) -> None:
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    for file, answer in ((first, "no"), (second, "never")):
        file.write_text(json.dumps({"messages": [*ASKED, ANSWER], "rejected_response": answer}) + "\n")
    plan = judge(mindspeed(f"data.paths=[{first},{second}]", f"output_dir={tmp_path}/out")).plan()
    (written,) = plan.files
    Path(written.path).parent.mkdir()
    Path(written.path).write_text(written.content)
    (prepare,) = plan.prepare
    subprocess.run([sys.executable, *prepare.argv[1:]], check=True)
    argv = plan.nodes[0].argv
    trained = Path(argv[argv.index("--data-path") + 1])
    assert argv[argv.index("--handler-name") + 1] == "SharegptStylePairwiseHandler"
    rejected = [json.loads(line)["rejected"]["value"] for line in trained.read_text().splitlines()]
    assert rejected == ["no", "never"]


def mindspeed(*words: str) -> Job:
    given = ("backend=mindspeed", "data.format=messages", "data.validation_ratio=null", "schedule.epochs=null")
    return compose(["+recipe=qwen3_8b_dpo", *given, "schedule.train_iters=4", *words])


def test_a_second_data_set_is_refused() -> None:
    outcome = judge(mindspeed("data.paths=[a.jsonl]", "data.validation_paths=[b.jsonl]"))
    assert any("reads one data set" in finding.message for finding in outcome.findings)


def test_the_reference_refuses_another_loss() -> None:
    words = ["+recipe=qwen3_8b_dpo", "precision.dtype=fp32", "schedule.epochs=null", "schedule.train_iters=2"]
    assert not reference_lacks(compose(words))
    ((path, value, override),) = reference_lacks(compose([*words, "task.loss_type=hinge"]))
    assert (path, value, override) == ("task.loss_type", "hinge", "task.loss_type=sigmoid")
    assert [each[0] for each in reference_lacks(compose([*words, "task.reference_model=/m"]))] == [
        "task.reference_model"
    ]
