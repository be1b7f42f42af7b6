"""Arguments and results of vLLM, with the fields that ms-swift 4.6.0 sets and reads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(kw_only=True)
class EngineArgs:
    """What ms-swift starts an engine with; what concerns kernels and memory is taken and has no effect."""

    model: str
    dtype: str = "auto"
    seed: int = 0
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    hf_overrides: Mapping[str, Any] = field(default_factory=dict)
    trust_remote_code: bool = False
    distributed_executor_backend: str | None = None
    gpu_memory_utilization: float = 0.9
    enable_expert_parallel: bool = False
    enable_lora: bool = False
    max_loras: int = 1
    max_lora_rank: int = 16
    limit_mm_per_prompt: Mapping[str, int] = field(default_factory=dict)
    enable_sleep_mode: bool = False
    enable_prefix_caching: bool | None = None
    disable_cascade_attn: bool = False
    disable_custom_all_reduce: bool = False
    disable_log_stats: bool = False
    enforce_eager: bool = False
    load_format: str = "auto"
    logprobs_mode: str = "raw_logprobs"
    mm_processor_cache_gb: float = 4
    quantization: str | None = None
    speculative_config: Mapping[str, Any] | None = None


@dataclass(kw_only=True)
class SamplingParams:
    """How the answer of one request is drawn."""

    n: int = 1
    max_tokens: int | None = 16
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    seed: int | None = None
    stop: list[str] | None = None
    stop_token_ids: list[int] | None = None
    logprobs: int | None = None
    prompt_logprobs: int | None = None


@dataclass(kw_only=True)
class Logprob:
    """Logarithm of the probability of a token."""

    logprob: float


@dataclass(kw_only=True)
class CompletionOutput:
    """An answer: its tokens with the one that ends it, and the probability of each."""

    index: int
    token_ids: Sequence[int]
    logprobs: list[dict[int, Logprob]] | None
    finish_reason: str


@dataclass(kw_only=True)
class RequestOutput:
    """A request with its answer."""

    request_id: str
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    prompt_logprobs: None = None
    finished: bool = True


@dataclass(kw_only=True)
class Request:
    """A request that waits for its answer; ``room`` is the number of tokens that fit the model's length."""

    id: str
    prompt: list[int]
    params: SamplingParams
    room: int


class LoRARequest:
    """An adapter beside the weights, which this engine does not have."""


class PoolingParams:
    """Parameters of embeddings and scores, which this engine does not compute."""


class StructuredOutputsParams:
    """A form that answers must have, which this engine does not impose."""

    def __init__(self, **_kwargs: Any) -> None:
        raise NotImplementedError("a rehearsal has no structured output: leave out structured_outputs_regex")
