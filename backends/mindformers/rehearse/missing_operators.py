"""Table of MindSpore operators without an exact kernel for CPU: what MindFormers uses them for, what rehearsals do."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingOperator:
    """One operator, or a group that is missing together.

    Attributes:
        name: as MindSpore names it.
        used_for: what MindFormers computes with it.
        instead: what a rehearsal computes; "": it cannot run.
        refused: the flags that are refused where they are above 1.
    """

    name: str
    used_for: str
    instead: str = ""
    refused: tuple[str, ...] = ()


MISSING: tuple[MissingOperator, ...] = (
    MissingOperator(name="FlashAttentionScore", used_for="attention", instead="float32 scores, softmax and mask"),
    MissingOperator(name="RmsNorm", used_for="norms", instead="square, mean and rsqrt"),
    MissingOperator(name="Swiglu", used_for="MLPs", instead="silu of the first half times the second"),
    MissingOperator(name="RotaryPositionEmbedding", used_for="rotary positions", instead="slices, negation and sums"),
    MissingOperator(name="Outer", used_for="angles of positions", instead="a product of two vectors"),
    MissingOperator(name="IndexSelect", used_for="rows of a tensor", instead="gather"),
    MissingOperator(name="SplitWithSize", used_for="queries, keys and values of one projection", instead="slices"),
    MissingOperator(name="TopkExt", used_for="the router's choice of experts", instead="TopK"),
    MissingOperator(name="Morph", used_for="reshapes of labels, logits and tokens", instead="the function itself"),
    MissingOperator(
        name="GroupedMatmul, AlltoAllV",
        used_for="experts on the tokens that chose them",
        instead="every expert on every token, weighted; no token is dropped",
    ),
    MissingOperator(
        name="BatchMatMul with broadcasting",
        used_for="experts of older models (Mixtral)",
        instead="BatchMatMul of three dimensions",
    ),
    MissingOperator(
        name="Exp, Log, Sigmoid, SiLU, Softmax",
        used_for="loss, router, activations, attention",
        instead="float64, rounded once: the float32 kernels approximate exp, off by up to 5e-6",
    ),
    MissingOperator(name="embedding", used_for="mint.nn.functional.embedding", instead="gather"),
    MissingOperator(name="Barrier", used_for="waiting for all ranks", instead="AllReduce of one number"),
    MissingOperator(
        name="NPUGetFloatStatusV2, FloatStatus", used_for="overflow", instead="whether the gradients' sum is finite"
    ),
    MissingOperator(name="bfloat16 and float16 kernels", used_for="mixed precision", instead="float32"),
    MissingOperator(
        name="gradient accumulation in data parallel mode",
        used_for="several micro-batches in a step",
        instead="MindFormers' own accumulation of the semi-automatic mode",
    ),
    MissingOperator(name="data sinking", used_for="steps without the host", instead="one step at a time"),
    MissingOperator(
        name="graph partition (Invalid backend: CPU)",
        used_for="tensor, pipeline, context and expert parallelism",
        refused=(
            "parallel_config.model_parallel",
            "parallel_config.pipeline_stage",
            "parallel_config.context_parallel",
            "parallel_config.expert_parallel",
        ),
    ),
)
"""Of mindspore 2.7.0 and 2.7.2, as mindformers 1.6.0 and 1.8.0 use them."""


def table() -> str:
    """Return the table as Markdown, for docs/rehearsal.md."""
    rows = (f"| {row.name} | {row.used_for} | {row.instead or 'cannot run: refused'} |" for row in MISSING)
    return "\n".join(("| missing on CPU | used for | a rehearsal computes |", "|---|---|---|", *rows))
