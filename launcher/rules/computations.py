"""What backends compute differently from the same job: findings of ports and of `launch diff`.

A topic is one quantity, with the ways in which stacks compute it. Each backend's package says which way it takes in a
range of versions (`Backend.computations`), and where upstream says so. Nothing is found where a side's way is unknown.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from launcher.catalogue.versions import in_range
from launcher.job.finding import Finding, Fix
from launcher.mapping.backend import get_backend
from launcher.mapping.computation import Computation
from launcher.records import dataclass
from launcher.rules.effective import EffectiveValues
from launcher.rules.engine import load
from launcher.rules.registry import RULES, RuleContext, is_lifted
from launcher.rules.table import holds

RULE = "COMPUTES"
"""Start of the ids of these findings; the topic follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A quantity that not all stacks compute in the same way.

    Attributes:
        quantity: what is computed, as it follows "computes".
        when: canonical fields of the jobs for which the ways differ, in the syntax of rules.
        ways: name of a way to what it does.
        measured: size of the difference, and with what; "": not measured.
        works: overrides each of which makes the ways the same.
        fields: canonical fields concerned.
    """

    quantity: str
    when: str = ""
    ways: Mapping[str, str]
    measured: str = ""
    works: tuple[str, ...] = ()
    fields: tuple[str, ...]


_BALANCED = "job.model.is_moe & job.moe.aux_loss_coeff>0 & job.moe.load_balancing_type!=none|sinkhorn"
_CHATS = "job.task.type=sft & job.data.format=messages"
_USUAL = "usual"

TOPICS: Mapping[str, Topic] = {
    "LOSS-CP": Topic(
        quantity="the mean of the loss under context parallelism",
        when="job.parallel.cp>1 & !job.precision.calculate_per_token_loss",
        ways={_USUAL: "the loss is divided by the number of tokens of all ranks"},
        measured="6e-05 of the loss and 1e-03 of the gradient norm, Qwen3 in fp32 with cp 2 (docs/parity.md)",
        works=("precision.calculate_per_token_loss=true",),
        fields=("parallel.cp", "precision.calculate_per_token_loss"),
    ),
    "LABELS-CP": Topic(
        quantity="the labels of fine-tuning under context parallelism",
        when="job.parallel.cp>1 & job.task.type=sft",
        ways={_USUAL: "they are shifted before the sequence is split over the ranks"},
        measured="4e-04 of the loss and 8e-04 of the gradient norm, Qwen3 in fp32 with cp 2 and 128 tokens "
        "(docs/parity.md)",
        works=("parallel.cp=1",),
        fields=("parallel.cp",),
    ),
    "LOSS-DP": Topic(
        quantity="the mean of the loss over data-parallel ranks with a loss mask",
        when="job.parallel.dp>1 & !job.precision.calculate_per_token_loss & job.data.eod_mask_loss or "
        "job.parallel.dp>1 & !job.precision.calculate_per_token_loss & job.task.type!=pretrain",
        ways={
            "rank": "each rank divides the loss by its own number of unmasked tokens",
            "all": "the sum over all ranks is divided by the number of unmasked tokens of all ranks",
        },
        works=("precision.calculate_per_token_loss=true",),
        fields=("precision.calculate_per_token_loss",),
    ),
    "LOSS-MASK": Topic(
        quantity="the loss mask",
        ways={_USUAL: "each sample has its own loss mask, and padding is no end of a document"},
        fields=("tokenizer.type", "data.eod_mask_loss"),
    ),
    "ATTENTION-MASK": Topic(
        quantity="the attention mask",
        ways={_USUAL: "a token sees only those before it"},
        fields=("kernels.attention_backend",),
    ),
    "EXPERT-GRADIENTS": Topic(
        quantity="the gradients of experts under tensor parallelism without expert parallelism",
        when="job.model.is_moe & job.parallel.tp>1 & job.parallel.ep<=1",
        ways={_USUAL: "experts are split over the tensor-parallel ranks, so their gradients are complete"},
        fields=("parallel.etp", "parallel.tp"),
    ),
    "LOGITS-GRADIENT": Topic(
        quantity="the gradient of the logits in fused cross entropy",
        when="job.kernels.cross_entropy_fusion & job.precision.dtype=fp32",
        ways={
            "bf16": "it is rounded to bf16 in every number format",
            _USUAL: "it has the number format of the logits",
        },
        measured="0.15 % of all gradients in fp32",
        works=("kernels.cross_entropy_fusion=false",),
        fields=("kernels.cross_entropy_fusion",),
    ),
    "BALANCE-WEIGHT": Topic(
        quantity="the weight of the routers' auxiliary losses where sequences are split over ranks",
        when=f"{_BALANCED} & job.parallel.cp>1 or "
        f"{_BALANCED} & job.parallel.tp>1 & job.precision.calculate_per_token_loss",
        ways={"whole": "it is the coefficient"},
        measured="1.7e-03 of the gradient norm, Qwen3-MoE in fp32 with cp 2 and coefficient 0.05",
        fields=("moe.aux_loss_coeff", "parallel.cp"),
    ),
    "BALANCE-SEQUENCE": Topic(
        quantity="the load of experts in the load-balancing loss under context parallelism",
        when=f"job.parallel.cp>1 & {_BALANCED}",
        ways={
            "whole": "tokens of all context-parallel ranks are counted together",
            "part": "each context-parallel rank counts its own part of the sequence",
        },
        works=("moe.aux_loss_coeff=0.0",),
        fields=("moe.aux_loss_coeff", "parallel.cp"),
    ),
    "BALANCE-CHOICE": Topic(
        quantity="the load of experts in the load-balancing loss",
        when=f"{_BALANCED} & job.model.router_expert_bias or {_BALANCED} & job.model.n_group>{{job.model.topk_group}}",
        ways={
            "chosen": "the experts that tokens are sent to are counted, chosen with the expert bias and within groups",
            "scores": "the experts with the best scores are counted, without the expert bias and of all groups",
        },
        measured="8e-02 of the gradient norm, a small DeepSeek-V3 in fp32 with coefficient 0.5",
        works=("moe.aux_loss_coeff=0.0",),
        fields=("moe.aux_loss_coeff", "model.router_expert_bias", "model.n_group"),
    ),
    "BALANCE-JOINED": Topic(
        quantity="the sequence-wise load-balancing loss",
        when=f"{_BALANCED} & job.moe.load_balancing_type=seq_aux_loss & job.batch.micro_batch_size>1",
        ways={_USUAL: "the load is balanced over each sequence of a micro-batch"},
        measured="1e-02 of the gradient norm, Qwen3-MoE in fp32 with coefficient 1 (docs/parity.md)",
        works=("batch.micro_batch_size=1",),
        fields=("moe.load_balancing_type", "batch.micro_batch_size"),
    ),
    "BALANCE-PADDING": Topic(
        quantity="the load of experts in fine-tuning",
        when=f"{_BALANCED} & job.task.type=sft",
        ways={_USUAL: "samples are concatenated without padding, and tokens alone are counted"},
        measured="2e-04 of the gradient norm, Qwen3-MoE in fp32 (docs/parity.md)",
        works=("moe.aux_loss_coeff=0.0",),
        fields=("moe.aux_loss_coeff", "batch.packing"),
    ),
    "CHAT-END": Topic(
        quantity="the end of an answer in this chat template",
        when=f"{_CHATS} & job.data.template=chatml|qwen",
        ways={
            "line": "the line end after <|im_end|> is learned",
            "token": "an answer ends with <|im_end|>, and nothing after it is learned",
        },
        works=("data.template=qwen3",),
        fields=("data.template",),
    ),
    "CHAT-FORMAT": Topic(
        quantity="the chat template of DeepSeek-V2",
        when=f"{_CHATS} & job.model.model_type=deepseek_v2 & !job.data.template",
        ways={
            "tokens": "turns begin with special tokens (deepseek_v2_5)",
            "words": "turns begin with the words User: and Assistant: (deepseek2)",
        },
        fields=("data.template", "model.model_type"),
    ),
    "CHAT-THINKING": Topic(
        quantity="the loss of the empty reasoning before an answer without one",
        when=f"{_CHATS} & job.data.enable_thinking",
        ways={"learned": "it is learned", "given": "it is a part of the prompt"},
        works=("data.enable_thinking=false",),
        fields=("data.enable_thinking",),
    ),
    "MTP-NORM": Topic(
        quantity="the input of the multi-token prediction layer",
        when="job.model.num_nextn_predict_layers>0",
        ways={_USUAL: "it is the output of the last layer after the model's final norm"},
        fields=("model.num_nextn_predict_layers",),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """How one side computes a topic: what it does, its source, and whether a finding of its own rules says so."""

    does: str
    source: str
    reported: bool = False


def computed_differently(jobs: Sequence[EffectiveValues], *, reported_by: int | None = None) -> Iterator[Finding]:
    """Yield a finding for each quantity that backends compute differently from their jobs.

    Args:
        jobs: one or the same job on several backends, after the validation of each.
        reported_by: number of a job whose own findings are shown too: what they say is left out.
    """
    contexts = [each.context for each in jobs]
    if len({_title(each) for each in contexts}) < 2:
        return
    for id_, topic in TOPICS.items():
        names: dict[str, list[str]] = {}
        sources: dict[str, None] = {}
        is_reported = False
        for number, context in enumerate(contexts):
            way = _way(id_, context) if holds(topic.when, context) else None
            if way is not None:
                names.setdefault(way.does, []).append(_title(context))
                sources[way.source] = None
                is_reported |= way.reported and number == reported_by
        if len(names) < 2 or is_reported:
            continue
        *most, last = dict.fromkeys(name for each in names.values() for name in each)
        each_ = "; ".join(f"{', '.join(dict.fromkeys(who))}: {does}" for does, who in names.items())
        size = f" (measured: {topic.measured})" if topic.measured else ""
        yield Finding(
            rule=f"{RULE}-{id_}",
            severity="warning",
            message=f"{', '.join(most)} and {last} compute {topic.quantity} differently: {each_}{size}",
            fields=topic.fields,
            fixes=tuple(Fix(overrides=(override,), affects_training=True) for override in topic.works),
            source="; ".join(sources),
        )


def _title(context: RuleContext) -> str:
    return f"{get_backend(context.backend or '').title} {context.version}"


def _way(topic: str, context: RuleContext) -> _Way | None:
    """Return how a backend computes a topic for its job; None where its table does not say."""
    backend = get_backend(context.backend or "")
    load(backend.rules)
    for row in _of_topic(backend.name, topic):
        if not in_range(context.version or "", *row.versions[backend.name]):
            continue
        if row.rule:
            rule = RULES[row.rule]
            if rule.applies_to(backend.name, context.version) and _is_broken(row.rule, context):
                return _Way(does=_sentence(rule.doc), source=rule.source, reported=True)
        elif holds(row.when, context):
            return _Way(does=TOPICS[topic].ways[row.way], source=row.source)
    return None


def _is_broken(id_: str, context: RuleContext) -> bool:
    rule = RULES[id_]
    return not is_lifted(rule, context) and any(True for _ in rule.check(context))


def _sentence(doc: str) -> str:
    """Return a rule's explanation as a part of a sentence."""
    return doc[:1].lower() + doc[1:].rstrip(".")


@cache
def _of_topic(backend: str, topic: str) -> tuple[Computation, ...]:
    rows = get_backend(backend).computations()
    return tuple(row for row in rows if row.topic == topic and backend in row.versions)
