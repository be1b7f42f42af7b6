"""Evaluation and generated samples."""

from launcher.job.option import option
from launcher.job.sources import ARGUMENTS
from launcher.records import dataclass

_HF_GENERATION = "Hugging Face GenerationConfig"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Evaluation on held-out data."""

    interval: int | None = option(
        None, "Steps between evaluations.", unit="iterations", source=f"{ARGUMENTS} --eval-interval", minimum=1
    )
    iters: int | None = option(
        None, "Batches per evaluation; 0: none.", unit="iterations", source=f"{ARGUMENTS} --eval-iters", minimum=0
    )
    epochs: int | None = option(
        None, "Passes between evaluations.", unit="epochs", source="MindFormers eval_epoch_interval", minimum=1
    )
    metric: str | None = option(None, "Metric; none: the loss.", source="MindFormers metric.type")
    shuffle: bool | None = option(None, "Shuffle the evaluation's samples.", source="MindFormers eval_dataset")
    drop_last: bool | None = option(
        None, "Drop the evaluation's last, incomplete batch.", source="MindFormers eval_dataset"
    )
    columns: tuple[str, ...] = option(
        (), "Columns that the evaluation's samples have; none: those of training.", source="MindFormers eval_dataset"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """Text generation with the model: beside training, and within it to sample responses (GRPO, GKD)."""

    do_sample: bool | None = option(None, "Sample tokens instead of taking the most likely one.", source=_HF_GENERATION)
    temperature: float | None = option(
        None, "Sampling temperature.", source=_HF_GENERATION, minimum=0, affects_training=True
    )
    top_k: int | None = option(
        None,
        "Top-k sampling: number of candidate tokens; 0 (vLLM: -1): all.",
        source=_HF_GENERATION,
        minimum=-1,
        affects_training=True,
    )
    top_p: float | None = option(
        None,
        "Top-p sampling: cumulative probability of the candidate tokens.",
        source=_HF_GENERATION,
        minimum=0,
        affects_training=True,
    )
    repetition_penalty: float | None = option(
        None,
        "Repetition penalty: divisor of the logits of earlier tokens; 1: none.",
        source=_HF_GENERATION,
        minimum=0,
        affects_training=True,
    )
    max_new_tokens: int | None = option(
        None, "Maximum length of the answer, without the prompt.", unit="tokens", source=_HF_GENERATION, minimum=1
    )
    max_length: int | None = option(
        None, "Maximum length of the text, prompt included.", unit="tokens", source=_HF_GENERATION, minimum=1
    )
    use_cache: bool | None = option(None, "Use a cache of keys and values.", source=_HF_GENERATION)
    batch_size: int | None = option(None, "Prompts per batch.", source="MindFormers LlamaConfig", minimum=1)
