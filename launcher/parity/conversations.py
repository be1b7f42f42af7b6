"""One set of conversations for fine-tuning: messages that every backend formats itself, and the chat template.

All samples are shorter than a sequence, because backends treat longer ones differently, and have different lengths, so
that padding and the average over tokens matter.

Packing: backends put samples together in different ways, so every iteration has all samples. Pairs of them fill a
sequence, and all have as many predictions, so that the loss is the same whatever is beside whatever.
"""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher.families.registry import FAMILIES
from launcher.job import Job
from launcher.parity.data import shipped_text, strided
from launcher.tokenized import IGNORED, sample

TOKENIZED, STRIDED_TOKENIZED = "tokenized.jsonl", "tokenized_strided.jsonl"
CONVERSATIONS, STRIDED = "conversations.jsonl", "conversations_strided.jsonl"
PACKED = 2  # samples of a packed sequence
_LEAST_QUESTION, _LEAST_ANSWER = 4, 8
_SECOND_TURN_EVERY = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTemplate:
    """Text around messages, as ChatML has it.

    Attributes:
        system: system prompt of a conversation without one; "": none.
        thinking: whether an answer without reasoning begins with an empty one, as Qwen3's templates write it.
    """

    system: str = ""
    thinking: bool = False

    def question(self, text: str) -> str:
        """Return a user's turn and the head of the answer to it."""
        return f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"

    @property
    def head(self) -> str:
        """Text before the first turn."""
        return f"<|im_start|>system\n{self.system}<|im_end|>\n" if self.system else ""

    @property
    def thought(self) -> str:
        """Text before an answer."""
        return "<think>\n\n</think>\n\n" if self.thinking else ""

    def jinja(self, *, learns_thought: bool) -> str:
        """Return the template for transformers; what the loss counts stands between generation marks.

        Source: transformers, apply_chat_template(return_assistant_tokens_mask=True).

        Args:
            learns_thought: whether the empty reasoning is predicted.
        """

        def quoted(text: str) -> str:
            return "{{ " + repr(text) + " }}"

        user, _, answer = self.question("\0").partition("\0")
        begins = "{% generation %}"
        thought = begins + quoted(self.thought) if learns_thought else quoted(self.thought) + begins
        return (
            (quoted(self.head) if self.head else "")
            + "{% for message in messages %}{% if message['role'] == 'user' %}"
            + f"{quoted(user)}{{{{ message['content'] }}}}{quoted(answer)}"
            + f"{{% else %}}{thought}{{{{ message['content'] }}}}{quoted(TURN_END)}{{% endgeneration %}}"
            + "{% endif %}{% endfor %}"
        )

    @classmethod
    def longest(cls) -> "ChatTemplate":
        """Return the longest one, for a template that is not known here."""
        return cls(system=_QWEN, thinking=True)

    def length(self, messages: Sequence[Mapping[str, str]]) -> int:
        """Return the number of tokens of a conversation: bytes, and one for each special token."""
        text = self.head
        for each in messages:
            is_question = each["role"] == "user"
            text += self.question(each["content"]) if is_question else self.thought + each["content"] + TURN_END
        return len(text.replace("<|im_start|>", "\0").replace("<|im_end|>", "\0"))


TURN_END = "<|im_end|>\n"
# By the names of backends. ms-swift 4.6.0 swift/template/templates/{utils,qwen}.py; MindSpeed-LLM 26.1.0
# configs/finetune/templates.json.
_QWEN = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
_HELPFUL = "You are a helpful assistant."
TEMPLATES: Mapping[str, ChatTemplate] = {
    "chatml": ChatTemplate(),
    "qwen": ChatTemplate(system=_HELPFUL),
    "qwen2_5": ChatTemplate(system=_QWEN),
    "qwen_lf": ChatTemplate(system=_QWEN),
    "qwen3": ChatTemplate(thinking=True),
    "qwen3_nothinking": ChatTemplate(),
}


def template_of(job: Job) -> ChatTemplate | None:
    """Return the chat template of the job, or of its family; None where it is not known here."""
    family = FAMILIES.get(job.model.model_type or "")
    return TEMPLATES.get(job.data.template or (family.chat_template if family is not None else ""))


def write_conversations(folder: Path, job: Job, *, samples: int, seq_length: int) -> None:
    """Write `conversations.jsonl`, one object with `messages` a line; the same bytes for the same arguments.

    `conversations_strided.jsonl` has the same lines in the order that gives a backend with `strided_samples` the same
    micro-batches.

    Args:
        samples: samples of the whole training; packed sequences of one iteration, where they are packed.

    Raises:
        ValueError: a sequence is too short for a conversation, or the shipped text for so many.
    """
    template = template_of(job) or ChatTemplate.longest()
    folder.mkdir(parents=True, exist_ok=True)
    text = shipped_text()
    if samples * (_LEAST_QUESTION + _LEAST_ANSWER) > len(text):  # before millions of them are drawn
        raise _exceeds(samples, text)
    drawn = random.Random(job.seed or 0)
    made = (_pairs if job.batch.packing else _different)(template, drawn, seq_length - 1, samples)
    if not made:
        raise ValueError(f"{seq_length} tokens are too few for a conversation in this chat template")
    lines = _lines(made, text)
    micro, ranks = job.batch.micro_batch_size, job.parallel.dp or 1
    (folder / CONVERSATIONS).write_text("".join(lines), encoding="utf-8")
    (folder / STRIDED).write_text("".join(strided(lines, micro, ranks)), encoding="utf-8")


def _exceeds(samples: int, text: str) -> ValueError:
    return ValueError(f"{samples} conversations exceed the shipped text of {len(text)} characters")


def _lines(made: Sequence[Sequence[dict[str, str]]], text: str) -> list[str]:
    """Return a line for each conversation, with the shipped text instead of blanks."""
    lines, at = [], 0
    for messages in made:
        for each in messages:
            size = len(each["content"])
            # No answer begins with a space: ms-swift 4.6 leaves it out of the loss with the empty reasoning before it
            # (swift/loss_scale/config/ignore_empty_think.json).
            at += len(text[at:]) - len(text[at:].lstrip())
            each["content"] = text[at : at + size]
            at += size
        lines.append(json.dumps({"messages": messages}) + "\n")
    if at > len(text):
        raise _exceeds(len(made), text)
    return lines


def _different(template: ChatTemplate, drawn: random.Random, longest: int, samples: int) -> list[list[dict[str, str]]]:
    """Return conversations of one and two turns and of different lengths, with blanks; [] where none fits."""
    made = []
    for number in range(samples):
        turns = 2 if number % _SECOND_TURN_EVERY == 1 else 1
        messages = _messages(template, drawn, longest, turns) or _messages(template, drawn, longest, 1)
        if messages is None:
            return []
        made.append(messages)
    return made


def _pairs(template: ChatTemplate, drawn: random.Random, longest: int, packs: int) -> list[list[dict[str, str]]]:
    """Return two conversations for each packed sequence, a long one and what it leaves; [] where they do not fit."""
    free = longest - PACKED * template.length(_conversed(_LEAST_QUESTION, _LEAST_ANSWER))
    if free < 0:
        return []
    more = [drawn.randint((free + 1) // 2, free) for _ in range(packs)]
    questions = [*more, *(free - each for each in more)]
    drawn.shuffle(questions)
    return [_conversed(_LEAST_QUESTION + each, _LEAST_ANSWER) for each in questions]


def _messages(template: ChatTemplate, drawn: random.Random, longest: int, turns: int) -> list[dict[str, str]] | None:
    """Return messages of blanks with at most `longest` tokens; None where so many turns do not fit."""
    least = [_conversed(_LEAST_QUESTION, _LEAST_ANSWER) for _ in range(turns)]
    free = longest - template.length([message for turn in least for message in turn])
    if free < 0:
        return None
    found = []
    for left in range(turns, 0, -1):
        question, answer = drawn.randint(0, free // left // 3), drawn.randint(0, free // left // 2)
        free -= question + answer
        found += _conversed(_LEAST_QUESTION + question, _LEAST_ANSWER + answer)
    return found


def _conversed(question: int, answer: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": " " * question}, {"role": "assistant", "content": " " * answer}]


def labelled(folder: Path, model: Path, job: Job) -> tuple[list[list[int]], list[list[int]]]:
    """Return tokens and labels of each conversation, in transformers' formatting; the label of a question is -100.

    Raises:
        LookupError: the job's chat template is not known here.
    """
    from transformers import AutoTokenizer

    template = template_of(job)
    if template is None:
        raise LookupError(job.data.template or job.model.model_type or "none")
    tokenizer: Any = AutoTokenizer.from_pretrained(str(model))
    text = template.jinja(learns_thought=job.data.enable_thinking is True)
    tokens, labels = [], []
    for line in (folder / CONVERSATIONS).read_text(encoding="utf-8").splitlines():
        made = tokenizer.apply_chat_template(
            json.loads(line)["messages"],
            chat_template=text,
            tokenize=True,
            return_dict=True,
            return_assistant_tokens_mask=True,
        )
        tokens.append(list(made["input_ids"]))
        pairs = zip(made["input_ids"], made["assistant_masks"], strict=True)
        labels.append([token if learned else IGNORED for token, learned in pairs])
    return tokens, labels


def write_tokenized(folder: Path, model: Path, job: Job) -> None:
    """Write the conversations for backends that format no messages: token numbers and labels.

    Nothing is written where the job's chat template is not known here.
    """
    if template_of(job) is None:
        return
    length = job.batch.seq_length or 0
    lines = [
        json.dumps(sample(*each, length=length)) + "\n" for each in zip(*labelled(folder, model, job), strict=True)
    ]
    micro, ranks = job.batch.micro_batch_size, job.parallel.dp or 1
    (folder / TOKENIZED).write_text("".join(lines), encoding="utf-8")
    (folder / STRIDED_TOKENIZED).write_text("".join(strided(lines, micro, ranks)), encoding="utf-8")
