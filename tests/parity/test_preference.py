"""The reference's DPO loss is TRL's; the pairs are what backends read; MindSpeed-LLM's form of them."""

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import backends.mindspeed.preference_pairs as script
from backends.mindspeed.preference_pairs import rewritten
from launcher.compose import compose
from launcher.job import Job
from launcher.parity import reference_dpo
from launcher.parity.preference import Pair, read_pairs, sequences, write_pairs
from launcher.parity.reference import unsupported
from launcher.parity.reference_dpo import Preference, preference_loss
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
    preference = Preference(pairs=pairs, beta=beta, label_smoothing=smoothing, rpo_alpha=alpha)
    expected = 0.0
    for chosen, rejected, old_chosen, old_rejected in values:
        better, worse = beta * (chosen - old_chosen), beta * (rejected - old_rejected)
        top = max(better, worse)
        both = top + math.log(math.exp(better - top) + math.exp(worse - top))
        expected += ((1 - smoothing) * (both - better) + smoothing * (both - worse)) / len(values)
    expected -= alpha * sum(each[0] for each in values) / sum(len(each.chosen) for each in pairs)
    assert float(preference_loss(torch, preference, policy, before, pairs)) == pytest.approx(expected, rel=1e-9)


def pair(chosen: Sequence[int]) -> Pair:
    return Pair(prompt=[1], chosen=list(chosen), rejected=[2])


def test_equal_models_give_log_two() -> None:
    torch = pytest.importorskip("torch")
    values = torch.tensor([[-3.0, -90.0]])
    preference = Preference(pairs=[pair([1])], beta=0.3, label_smoothing=0.2, rpo_alpha=0.0)
    assert float(preference_loss(torch, preference, values, values, [pair([1])])) == pytest.approx(math.log(2))


def test_the_tokens_are_those_of_the_chat_template(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tokenizer_directory())
    write_pairs(tmp_path, samples=6)
    lines = [json.loads(line) for line in (tmp_path / "pairs.jsonl").read_text().splitlines()]
    for line, found in zip(lines, read_pairs(tmp_path), strict=True):
        question, _ = line["messages"]
        start = tokenizer.apply_chat_template([question], tokenize=False, add_generation_prompt=True)
        thought = "<think>\n\n</think>\n\n"
        for tokens, answer in ((found.chosen, line["messages"][1]["content"]), (found.rejected, rejected_of(line))):
            text = f"{start}{thought}{answer}<|im_end|>\n"
            assert tokenizer.decode([*found.prompt, *tokens]) == text
            assert [*found.prompt, *tokens] == tokenizer(text, add_special_tokens=False)["input_ids"]
            assert len(found.prompt) + len(tokens) < sequences(compose(["+recipe=tiny_qwen3"]))["batch.seq_length"]
    assert len({len(each.chosen) for each in read_pairs(tmp_path)}) > 1
    assert any(len(each.chosen) != len(each.rejected) for each in read_pairs(tmp_path))


def rejected_of(line: dict[str, Any]) -> str:
    return str(line["rejected_response"])


def test_too_many_pairs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="exceed the shipped text"):
        write_pairs(tmp_path, samples=10**6)


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
    job = compose([*words, "task.loss_type=hinge"])
    assert not list(unsupported(job, reference_dpo.COMPUTED))
    ((path, value, override),) = reference_dpo.unsupported(job)
    assert (path, value, override) == ("task.loss_type", "hinge", "task.loss_type=sigmoid")
    other = compose([*words, "task.reference_model=/m"])
    assert [each[0] for each in unsupported(other, reference_dpo.COMPUTED)] == ["task.reference_model"]
